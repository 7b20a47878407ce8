//! How the fields of a block are taken out of an object and put back.
//!
//! *Absent:* which blocks there are. A field that is null, or of another kind than the block declares, is not an error:
//! it stays with the undeclared fields, verbatim.

use super::Annotation;
use crate::serde_view::by_view;
use crate::{MessageError, ToolStatus};
use annals_base::{Map, Value, ValueView};

/// The type of one field.
pub(super) trait Leaf: Default {
    /// Returns whether [`read`](Self::read) takes the value.
    fn fits(value: &Value) -> bool;
    fn read(value: Value) -> Option<Self>;
    fn write(self) -> Value;
}

/// A field: needed, or (as an option) not.
pub(super) trait BlockField: Sized {
    /// Returns whether a block can be made of what stands at the field.
    fn fits(value: Option<&Value>) -> bool;
    /// Takes the field out of the object if it fits, and leaves it there otherwise.
    fn take(map: &mut Map, name: &str) -> Self;
    fn put(self, map: &mut Map, name: &str);
}

impl<T: Leaf> BlockField for T {
    fn fits(value: Option<&Value>) -> bool {
        value.is_some_and(T::fits)
    }

    fn take(map: &mut Map, name: &str) -> Self {
        map.shift_remove(name).and_then(T::read).unwrap_or_default()
    }

    fn put(self, map: &mut Map, name: &str) {
        map.insert(name.to_owned(), self.write());
    }
}

impl<T: Leaf> BlockField for Option<T> {
    fn fits(_: Option<&Value>) -> bool {
        true
    }

    fn take(map: &mut Map, name: &str) -> Self {
        map.get(name).is_some_and(T::fits).then(|| T::take(map, name))
    }

    fn put(self, map: &mut Map, name: &str) {
        if let Some(value) = self {
            value.put(map, name);
        }
    }
}

macro_rules! leaf {
    ($($type:ty = $variant:ident,)*) => {$(
        impl Leaf for $type {
            fn fits(value: &Value) -> bool {
                matches!(value, Value::$variant(_))
            }

            fn read(value: Value) -> Option<Self> {
                match value {
                    Value::$variant(value) => Some(value),
                    _ => None,
                }
            }

            fn write(self) -> Value {
                Value::$variant(self)
            }
        }
    )*};
}
leaf! { String = Str, i64 = Int, Map = Map, }

/// Any value at all.
impl Leaf for Value {
    fn fits(_: &Value) -> bool {
        true
    }

    fn read(value: Value) -> Option<Self> {
        Some(value)
    }

    fn write(self) -> Value {
        self
    }
}

impl Leaf for ToolStatus {
    fn fits(value: &Value) -> bool {
        matches!(value.as_str(), Some("success" | "error"))
    }

    fn read(value: Value) -> Option<Self> {
        Self::try_from(value).ok()
    }

    fn write(self) -> Value {
        match self {
            Self::Success => "success".into(),
            Self::Error => "error".into(),
        }
    }
}

impl Leaf for Vec<Annotation> {
    fn fits(value: &Value) -> bool {
        matches!(value, Value::List(_))
    }

    fn read(value: Value) -> Option<Self> {
        match value {
            Value::List(items) => Some(items.into_iter().map(Annotation::from).collect()),
            _ => None,
        }
    }

    fn write(self) -> Value {
        self.into()
    }
}

/// The place of a block in a stream of chunks: blocks with an equal one are one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Index {
    /// A number, as most providers give.
    Number(i64),
    /// A name, such as `lc_txt_0`: numbers that several kinds of blocks use are held apart by a prefix.
    Name(String),
}

impl Default for Index {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl From<i64> for Index {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Index {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<Index> for Value {
    fn from(index: Index) -> Self {
        match index {
            Index::Number(number) => Self::Int(number),
            Index::Name(name) => Self::Str(name),
        }
    }
}

impl Index {
    fn view(&self) -> ValueView<'_> {
        match self {
            Self::Number(number) => (*number).into(),
            Self::Name(name) => name.into(),
        }
    }
}

impl TryFrom<Value> for Index {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        let found = value.excerpt();
        Self::read(value).ok_or(MessageError::Invalid { path: "index".into(), expected: "an integer or a text", found })
    }
}

by_view!(Index);

impl Leaf for Index {
    fn fits(value: &Value) -> bool {
        matches!(value, Value::Int(_) | Value::Str(_))
    }

    fn read(value: Value) -> Option<Self> {
        match value {
            Value::Int(number) => Some(Self::Number(number)),
            Value::Str(name) => Some(Self::Name(name)),
            _ => None,
        }
    }

    fn write(self) -> Value {
        self.into()
    }
}

/// Declares a struct whose fields are those of an object with a `type`.
macro_rules! object {
    (
        $(#[$about:meta])*
        $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Default)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
            /// The id.
            pub id: Option<String>,
            /// Further fields of the provider.
            pub extras: Option<Map>,
            /// Fields that are not declared here, and declared ones that are null or hold another kind of value:
            /// verbatim and in order.
            pub more: Map,
        }

        impl $name {
            /// Reads an object of this type; gives it back as it is if a needed field is missing or does not fit.
            pub(super) fn read(mut map: Map) -> Result<Self, Map> {
                $(if !<$type as $crate::blocks::fields::BlockField>::fits(map.get(stringify!($field))) {
                    return Err(map);
                })*
                map.shift_remove("type");
                Ok(Self {
                    $($field: $crate::blocks::fields::BlockField::take(&mut map, stringify!($field)),)*
                    id: $crate::blocks::fields::BlockField::take(&mut map, "id"),
                    extras: $crate::blocks::fields::BlockField::take(&mut map, "extras"),
                    more: map,
                })
            }

            pub(super) fn write(self, kind: &str) -> Map {
                self.write_to(Map::from_iter([("type".to_owned(), kind.into())]))
            }

            fn write_to(self, mut map: Map) -> Map {
                use $crate::blocks::fields::BlockField;
                $(self.$field.put(&mut map, stringify!($field));)*
                self.id.put(&mut map, "id");
                self.extras.put(&mut map, "extras");
                for (name, value) in self.more {
                    map.or_insert_with(name, || value);
                }
                map
            }
        }

        /// Without `type`, which the case of the block tells.
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&self.clone().write_to(Map::new()), serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let unfit = |_| serde::de::Error::custom(concat!("not the fields of a ", stringify!($name)));
                Self::read(serde::Deserialize::deserialize(deserializer)?).map_err(unfit)
            }
        }
    };
}
pub(super) use object;

/// Gives types that are made of any value, and become one, that form in serde.
macro_rules! value_form {
    ($($name:ident),+) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&Value::from(self.clone()), serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <Value as serde::Deserialize>::deserialize(deserializer).map(Self::from)
            }
        }
    )+};
}
pub(super) use value_form;
