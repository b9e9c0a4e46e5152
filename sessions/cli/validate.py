"""validate."""

from __future__ import annotations

import click

from deltacompact.cli.answers import answer
from sessions.cli.options import allow_option, document_at, json_option


@click.command()
@click.argument("document", metavar="DOC.json", required=False)
@allow_option
@json_option
@click.option("--schema", is_flag=True, help="Print the JSON Schema of documents instead.")
def validate(document: str | None, allow: tuple[str, ...], as_json: bool, schema: bool) -> None:
    """Check an instruction document.

    If it is refused, one line names the field, and the exit status is 2. Every other parameter of
    deltacompact.compact() is a field by its own name. DOC.json may be "-", which is stdin.

    \b
    {
      "version": 1,
      "catalog": "s3://lake/tables",           file:///path or an absolute path as well
      "source_table_id": "orders",
      "primary_keys": ["id"],                  default: those of the table
      "sort_keys": [["updated", "ascending"]],
      "desired_sla": 900,                      seconds
      "partitions": [{"day": "2024-01-01"}]    default: all
    }

    For an Iceberg table:

    \b
    {
      "version": 1,
      "catalog": "iceberg://prod",             allowed by its name: --allow iceberg://prod
      "source_table_id": "db.orders",
      "mode": "rewrite",                       or "convert", "upsert"
      "options": {"delete-file-threshold": 1},
      "branch": "main"
    }
    """
    from sessions.documents.allow_list import AllowList
    from sessions.documents.instruction import json_schema

    if schema:
        click.echo(json_schema(), nl=False)
        return
    if document is None:
        raise click.UsageError("Missing argument 'DOC.json'.")
    instruction = document_at(document)
    AllowList(allow).check(instruction)
    answer(as_json, {"valid": True, "document": document}, f"{document} is valid")
