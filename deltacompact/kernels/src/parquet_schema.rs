//! Decides whether two Parquet schemas store the same pages, so that the footer of one can describe pages of the other.
//!
//! ```text
//! required group schema { optional int64 at (TIMESTAMP_MICROS); optional group l (LIST) { repeated group bag { … array_element } } }
//! required group schema { optional int64 at (TIMESTAMP(us));    optional group l (LIST) { repeated group list { … element } } }
//! ```
//!
//! Pages depend on physical types and levels, their meaning on logical types. Names inside of lists and maps, field ids,
//! and whether a type has the old form (converted) or the new form (logical) change neither.

use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::schema::types::Type;

/// The reason why the schema `wanted` cannot describe pages of `source`, or None.
pub fn difference(wanted: &Type, source: &Type) -> Option<String> {
    let (wanted, source) = (wanted.get_fields(), source.get_fields());
    if wanted.len() != source.len() {
        return Some(format!("it has {} columns, not {}", source.len(), wanted.len()));
    }
    wanted.iter().zip(source).find_map(|(wanted, source)| {
        if wanted.name() != source.name() {
            return Some(format!("it has a column {:?} in the place of {:?}", source.name(), wanted.name()));
        }
        (!same_pages(wanted, source)).then(|| format!("its column {:?} is stored in another way", source.name()))
    })
}

fn same_pages(wanted: &Type, source: &Type) -> bool {
    if repetition(wanted) != repetition(source) || wanted.is_group() != source.is_group() {
        return false;
    }
    if wanted.is_primitive() {
        return same_values(wanted, source);
    }
    match (kind(wanted), kind(source)) {
        (Some(Kind::Struct), Some(Kind::Struct)) => {
            let names = |group: &Type| group.get_fields().iter().map(|field| field.name().to_owned()).collect::<Vec<_>>();
            names(wanted) == names(source) && same_fields(wanted, source)
        }
        (Some(Kind::List), Some(Kind::List)) => same_items(wanted, source, 1),
        (Some(Kind::Map), Some(Kind::Map)) => same_items(wanted, source, 2),
        _ => false,
    }
}

fn same_fields(wanted: &Type, source: &Type) -> bool {
    let (wanted, source) = (wanted.get_fields(), source.get_fields());
    wanted.len() == source.len() && wanted.iter().zip(source).all(|(wanted, source)| same_pages(wanted, source))
}

/// The repeated group in a list or a map, and its content. Names do not matter.
fn same_items(wanted: &Type, source: &Type, width: usize) -> bool {
    let repeated = |group: &Type| match group.get_fields() {
        [items] if items.is_group() && repetition(items) == Some(Repetition::REPEATED) => {
            (items.get_fields().len() == width && !is_item_itself(items.name())).then(|| items.clone())
        }
        _ => None,
    };
    matches!((repeated(wanted), repeated(source)), (Some(wanted), Some(source)) if same_fields(&wanted, &source))
}

/// Old writers of lists left out one level: a repeated group with such a name is the item, a struct of one field.
fn is_item_itself(name: &str) -> bool {
    name == "array" || name.ends_with("_tuple")
}

fn repetition(field: &Type) -> Option<Repetition> {
    field.get_basic_info().has_repetition().then(|| field.get_basic_info().repetition())
}

enum Kind {
    Struct,
    List,
    Map,
}

/// None: the group is neither a list nor a map, so only its own writer knows its meaning.
fn kind(group: &Type) -> Option<Kind> {
    let info = group.get_basic_info();
    match (info.logical_type_ref(), info.converted_type()) {
        (Some(LogicalType::List), _) | (None, ConvertedType::LIST) => Some(Kind::List),
        (Some(LogicalType::Map), _) | (None, ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE) => Some(Kind::Map),
        (None, ConvertedType::NONE) => Some(Kind::Struct),
        _ => None,
    }
}

fn same_values(wanted: &Type, source: &Type) -> bool {
    let (
        Type::PrimitiveType { physical_type: a, type_length: m, .. },
        Type::PrimitiveType { physical_type: b, type_length: n, .. },
    ) = (wanted, source)
    else {
        return false;
    };
    let lengths = *a != Physical::FIXED_LEN_BYTE_ARRAY || m == n;
    a == b && lengths && meaning(wanted).is_some_and(|wanted| meaning(source).is_some_and(|source| wanted.fits(&source)))
}

/// The meaning of a primitive column's values, from its logical or its converted type.
#[derive(PartialEq)]
enum Meaning {
    Plain,
    Text,
    Integer {
        bits: i8,
        signed: bool,
    },
    Decimal {
        precision: i32,
        scale: i32,
    },
    Date,
    Time(TimeUnit),
    /// None: a converted type does not distinguish instants from local times. Readers disagree, but not on the value.
    Timestamp(TimeUnit, Option<bool>),
    Half,
    Null,
}

impl Meaning {
    fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Timestamp(unit, instant), Self::Timestamp(other_unit, other_instant)) => {
                unit == other_unit && (instant == other_instant || instant.is_none() || other_instant.is_none())
            }
            _ => self == other,
        }
    }
}

fn meaning(field: &Type) -> Option<Meaning> {
    let info = field.get_basic_info();
    let plain = || match field.get_physical_type() {
        Physical::INT32 => Meaning::Integer { bits: 32, signed: true },
        Physical::INT64 => Meaning::Integer { bits: 64, signed: true },
        _ => Meaning::Plain,
    };
    Some(match info.logical_type_ref() {
        Some(LogicalType::String | LogicalType::Json) => Meaning::Text,
        Some(LogicalType::Enum | LogicalType::Bson | LogicalType::Uuid) => Meaning::Plain,
        Some(LogicalType::Integer(integer)) => Meaning::Integer { bits: integer.bit_width, signed: integer.is_signed },
        Some(LogicalType::Decimal(decimal)) => Meaning::Decimal { precision: decimal.precision, scale: decimal.scale },
        Some(LogicalType::Date) => Meaning::Date,
        Some(LogicalType::Time(time)) => Meaning::Time(time.unit),
        Some(LogicalType::Timestamp(time)) => Meaning::Timestamp(time.unit, Some(time.is_adjusted_to_u_t_c)),
        Some(LogicalType::Float16) => Meaning::Half,
        Some(LogicalType::Unknown) => Meaning::Null,
        Some(_) => return None,
        None => match info.converted_type() {
            ConvertedType::NONE => plain(),
            ConvertedType::UTF8 | ConvertedType::JSON => Meaning::Text,
            ConvertedType::ENUM | ConvertedType::BSON => Meaning::Plain,
            ConvertedType::DECIMAL => Meaning::Decimal { precision: field.get_precision(), scale: field.get_scale() },
            ConvertedType::DATE => Meaning::Date,
            ConvertedType::TIME_MILLIS => Meaning::Time(TimeUnit::MILLIS),
            ConvertedType::TIME_MICROS => Meaning::Time(TimeUnit::MICROS),
            ConvertedType::TIMESTAMP_MILLIS => Meaning::Timestamp(TimeUnit::MILLIS, None),
            ConvertedType::TIMESTAMP_MICROS => Meaning::Timestamp(TimeUnit::MICROS, None),
            ConvertedType::INT_8 => Meaning::Integer { bits: 8, signed: true },
            ConvertedType::INT_16 => Meaning::Integer { bits: 16, signed: true },
            ConvertedType::INT_32 => Meaning::Integer { bits: 32, signed: true },
            ConvertedType::INT_64 => Meaning::Integer { bits: 64, signed: true },
            ConvertedType::UINT_8 => Meaning::Integer { bits: 8, signed: false },
            ConvertedType::UINT_16 => Meaning::Integer { bits: 16, signed: false },
            ConvertedType::UINT_32 => Meaning::Integer { bits: 32, signed: false },
            ConvertedType::UINT_64 => Meaning::Integer { bits: 64, signed: false },
            ConvertedType::INTERVAL | ConvertedType::LIST | ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE => return None,
        },
    })
}
