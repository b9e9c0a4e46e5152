"""A queue in a directory: every step is one rename, so that a process that dies anywhere loses nothing.

    ready/01763…-5c5c….0                 sent, received 0 times
    leased/01763…-5c5c….1.9f3a…          received once, receipt 9f3a…; its modification time is when it is ready again
    dead/01763…-5c5c….json               a dead letter: body, reason, field
    unfinished/…                         being written

Two receivers rename one file: one of them finds it gone and goes on to the next. A message that is released, or whose
receiver died, stays in leased/ until its time comes, and is received from there.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from urllib.parse import unquote

from deltacompact.base.errors import InputError, StoreError
from deltacompact.storage.opening import uri_parts
from sessions.base.exhaustion import exhausted
from sessions.base.unreadable import Unreadable
from sessions.queues.queue import PUT_OFF_MAX_S, VISIBILITY_S, DeadLetter, DeadReason, Depth, Message

RECEIVES_MAX = 20
_BYTES_MAX = 16 << 20
"""A document that is somewhat too long becomes a dead letter. What is longer than this is not even read."""
_UNFINISHED_FOR_S = 24 * 3600.0
_POLL_S = 0.1
_READY = re.compile(r"(?P<id>.+)\.(?P<receives>\d+)")
_LEASED = re.compile(r"(?P<id>.+)\.(?P<receives>\d+)\.(?P<receipt>[0-9a-f]{32})")


class DirectoryQueue:
    """Messages as files. Safe to use from several threads and processes of one machine."""

    def __init__(
        self,
        folder: Path,
        visibility_s: float = VISIBILITY_S,
        receives_max: int = RECEIVES_MAX,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.uri = folder.as_uri()
        self.named_dead_letters: str | None = None
        self._folder = folder
        self._visibility_s = visibility_s
        self._receives_max = receives_max
        self._clock = clock
        self._sends = itertools.count()
        self.unreadable = Unreadable()
        for name in ("ready", "leased", "dead", "unfinished"):
            try:
                (folder / name).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(f"queue {folder} cannot be used: {error.strerror or error}") from None
        self._forget_unfinished()

    @classmethod
    def at(cls, uri: str, visibility_s: float = VISIBILITY_S, make: bool = True) -> DirectoryQueue:
        """The queue at "file:///path" or a local path. Raises InputError if it is missing and `make` is False."""
        if not uri:
            raise InputError("--queue is empty: name a directory or the URL of an SQS queue")
        parts = uri_parts(uri)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            folder = Path(unquote(parts.path))
        elif "://" in uri:
            raise InputError(f"queue {uri!r} is neither a directory (file:///path) nor the URL of an SQS queue")
        else:
            folder = Path(uri).absolute()
        if not make and not (folder / "dead").is_dir():
            raise InputError(f"there is no queue in {folder}")
        return cls(folder, visibility_s)

    def send(self, body: str, group: str = "") -> str:
        # What one process sends within a millisecond is received in the order in which it was sent.
        name = f"{int(self._clock() * 1000):014d}-{next(self._sends):08x}{uuid.uuid4().hex[8:]}"
        self._write(self._folder / "ready" / f"{name}.0", _encoded(body))
        return name

    def receive(self, most: int, wait_s: float) -> list[Message]:
        deadline_s = time.monotonic() + wait_s
        while True:
            messages = self._receive(most)
            left_s = deadline_s - time.monotonic()
            if messages or left_s <= 0:
                return messages
            time.sleep(min(_POLL_S, left_s))

    def acknowledge(self, message: Message) -> None:
        with contextlib.suppress(FileNotFoundError):  # it was received again meanwhile, which does no harm
            os.unlink(self._leased(message))

    def release(self, message: Message, after_s: float) -> None:
        ready_s = self._clock() + after_s
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._leased(message), (ready_s, ready_s))

    def dead_letter(self, message: Message, reason: DeadReason, field: str, text: str) -> None:
        letter = {"body": message.body, "reason": reason, "field": field, "text": text, "dead_s": self._clock()}
        self._write(self._dead(message.id), json.dumps(letter).encode())
        self.acknowledge(message)

    def dead_letters(self) -> Generator[DeadLetter, None, None]:
        """The dead letters. Any other file is noted and left out."""
        for path in sorted(self._files("dead")):
            try:
                letter = DeadLetter(id=path.name.removesuffix(".json"), **json.loads(path.read_bytes()))
            except FileNotFoundError:
                continue
            except (ValueError, TypeError, RecursionError, OSError) as error:
                self._left_out(path, error)
                continue
            yield letter

    def redrive(self, dead: DeadLetter) -> None:
        self.send(dead.body)  # under a new name, which says when: what was sent before a job run ended is its duplicate
        self.drop(dead)

    def drop(self, dead: DeadLetter) -> None:
        try:
            self._dead(dead.id).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"queue {self._folder} cannot be changed: {error.strerror or error}") from error

    def depth(self) -> Depth:
        now_s = self._clock()
        waiting = [path for path in self._files("ready") if self._is_message(path, _READY)]
        leased = [path for path in self._files("leased") if self._is_message(path, _LEASED)]
        sent_s = min((_sent_s(path.name) for path in (*waiting, *leased)), default=None)
        dead = [path for path in self._files("dead") if str(path) not in self.unreadable.why]
        oldest_s = max(0.0, now_s - sent_s) if sent_s is not None else None
        return Depth(len(waiting), len(leased), len(dead), oldest_s, len(self.unreadable))

    def no_dead_letters(self) -> None:
        """A directory has a place for dead letters."""

    # Inside

    def _receive(self, most: int) -> list[Message]:
        messages: list[Message] = []
        for path, number, receives in self._receivable():
            if len(messages) == most:
                break
            message = self._lease(path, number, receives + 1)
            if message is None:
                continue
            if message.receives > self._receives_max:
                said = f"received {receives} times and never dealt with"
                self.dead_letter(message, DeadReason.RECEIVED_TOO_OFTEN, "", said)
            else:
                messages.append(message)
        return messages

    def _receivable(self) -> Iterator[tuple[Path, str, int]]:
        """Files of messages that may be received now, with id and number of receives; the first sent first."""
        now_s = self._clock()
        found = []
        for path in self._files("leased"):
            name = _LEASED.fullmatch(path.name)
            if name and (stat := self._stat(path)) and self._is_ready(stat.st_mtime, now_s):
                found.append((path, name["id"], int(name["receives"])))
        for path in self._files("ready"):
            if name := _READY.fullmatch(path.name):
                found.append((path, name["id"], int(name["receives"])))
        yield from sorted(found, key=lambda file: file[1])

    def _is_ready(self, ready_s: float, now_s: float) -> bool:
        """Nobody hides a message half as long: if its time lies further ahead, the clock was set back since."""
        return not now_s < ready_s <= now_s + 2 * max(self._visibility_s, PUT_OFF_MAX_S)

    def _stat(self, path: Path) -> os.stat_result | None:
        """None: the file is gone or is no message. A pipe would be waited for, and a link to nothing never received."""
        try:
            found = path.stat()
        except OSError as error:
            if path.is_symlink() or not isinstance(error, FileNotFoundError):
                self._not_read(path, error)
            return None
        if not stat.S_ISREG(found.st_mode):
            self._left_out(path, ValueError("it is no message"))
        elif found.st_size > _BYTES_MAX:
            self._left_out(path, ValueError(f"a message has at most {_BYTES_MAX:,} bytes, it has {found.st_size:,}"))
        else:
            return found
        return None

    def _lease(self, path: Path, number: str, receives: int) -> Message | None:
        """Take a message; None if somebody else was faster."""
        if (stat := self._stat(path)) is None:
            return None
        receipt = uuid.uuid4().hex
        leased = self._folder / "leased" / f"{number}.{receives}.{receipt}"
        ready_s = self._clock() + self._visibility_s
        try:
            body = path.read_bytes()  # first: what cannot be read is not received
            if stat.st_uid != os.geteuid():
                self._replace(path, body)  # a file is dated by its owner alone; who received it meanwhile sees it twice
            os.utime(path, (ready_s, ready_s))  # before it is leased: a file in leased/ always has its time
            os.rename(path, leased)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._not_read(path, error)
            return None
        self.unreadable.forget(str(path))
        return Message(number, body.decode(errors="surrogateescape"), receipt, receives, _sent_s(number))

    def _files(self, name: str) -> list[Path]:
        """What lies in a folder of the queue. Raises StoreError."""
        try:
            found = list((self._folder / name).iterdir())
        except OSError as error:
            raise StoreError(f"queue {self._folder} cannot be read: {error.strerror or error}") from error
        prefix = f"{self._folder / name}/"
        listed = {str(path) for path in found}
        for path in [path for path in self.unreadable.why if path.startswith(prefix) and path not in listed]:
            self.unreadable.forget(path)
        return found

    def _is_message(self, path: Path, named: re.Pattern[str]) -> bool:
        """Whether a file is a message. Any other file is remembered, and is not waited for."""
        if named.fullmatch(path.name):
            return self._stat(path) is not None and str(path) not in self.unreadable.why
        self._left_out(path, ValueError("it is no message"))
        return False

    def _not_read(self, path: Path, error: OSError) -> None:
        """Leave out a file that is not ours to read. Raises StoreError if this process could read none."""
        if exhausted(error):
            raise StoreError(f"queue {self._folder} cannot be read: {error.strerror or error}") from error
        if isinstance(error, PermissionError):
            error = PermissionError(f"user {os.geteuid()} may not read and replace this file of another user")
        self._left_out(path, error)

    def _left_out(self, path: Path, error: Exception) -> None:
        if not path.name.startswith("."):  # .DS_Store, .nfs…: they say nothing
            self.unreadable.note(str(path), error)

    def _leased(self, message: Message) -> Path:
        return self._folder / "leased" / f"{message.id}.{message.receives}.{message.receipt}"

    def _dead(self, message_id: str) -> Path:
        return self._folder / "dead" / f"{message_id}.json"

    def _forget_unfinished(self) -> None:
        """Remove what senders that were killed were writing."""
        with contextlib.suppress(OSError):  # another user's
            for path in (self._folder / "unfinished").iterdir():
                if time.time() - path.stat().st_mtime > _UNFINISHED_FOR_S:
                    path.unlink()

    def _write(self, path: Path, data: bytes) -> None:
        try:
            self._replace(path, data)
        except OSError as error:
            raise StoreError(f"writing to queue {self._folder} failed: {error.strerror or error}") from None

    def _replace(self, path: Path, data: bytes) -> None:
        unfinished = self._folder / "unfinished" / uuid.uuid4().hex
        try:
            with open(unfinished, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink()  # each try would leave another one, on a disk that is full already
            raise


def _encoded(body: str) -> bytes:
    return body.encode(errors="surrogateescape")


def _sent_s(name: str) -> float:
    """When a message was sent, as its name says; 0 for a file that somebody else named."""
    digits = name.partition("-")[0]
    return int(digits) / 1000 if digits.isdecimal() else 0.0
