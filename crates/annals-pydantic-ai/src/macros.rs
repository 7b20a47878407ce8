//! The macros that define the types of messages: a record is written as in the specification, field by
//! field in the order of the dump.
//!
//! *Absent:* types whose JSON depends on more than one field at a time, which are written by hand.

/// Implements serde for types through their JSON encoding. A missing time is the present one of the system, a missing
/// id is random.
macro_rules! serde_impls {
    ($($name:ident),+ $(,)?) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&$crate::wire::Wire::write(self), serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = <annals_base::Value as serde::Deserialize>::deserialize(deserializer)?;
                $crate::wire::read_serde::<Self>(stringify!($name), value).map_err(serde::de::Error::custom)
            }
        }
    )+};
}

/// Defines a struct that is an object in JSON.
///
/// The fields are dumped in their order, always all of them; `[kind = "word"]` is the member that names the kind of
/// object, dumped between the first and the second group of fields. `| "old"` names the field in older documents, `= f`
/// gives the default (otherwise that of the type), `before` changes the object before it is read, `after` checks the
/// record, and `finish` adds to the dump.
macro_rules! record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$m1:meta])* pub $f1:ident : $t1:ty $(| $a1:literal)? $(= $d1:expr)?,)*
        }
        $([$tag:ident = $word:literal])?
        $({ $($(#[$m2:meta])* pub $f2:ident : $t2:ty $(| $a2:literal)? $(= $d2:expr)?,)* })?
        $(before $before:path;)?
        $(after $after:path;)?
        $(finish $finish:path;)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        $vis struct $name {
            $($(#[$m1])* pub $f1: $t1,)*
            $($($(#[$m2])* pub $f2: $t2,)*)?
        }

        impl $crate::wire::Wire for $name {
            fn read(
                value: ::annals_base::Value,
                reader: &mut $crate::wire::WireReader<'_>,
            ) -> Option<Self> {
                #[allow(unused_mut)]
                let mut map = reader.object(value)?;
                $($before(&mut map, reader);)?
                $(reader.tag(&map, stringify!($tag), $word);)?
                $(let $f1 = record!(@field reader, map, $f1, $t1 $(, $a1)? $(= $d1)?);)*
                $($(let $f2 = record!(@field reader, map, $f2, $t2 $(, $a2)? $(= $d2)?);)*)?
                // One pattern for all fields: a `?` for each would compile to a drop path for each.
                let ($(Some($f1),)* $($(Some($f2),)*)?) = ($($f1,)* $($($f2,)*)?) else { return None };
                #[allow(unused_mut)]
                let mut record = Self { $($f1,)* $($($f2,)*)? };
                $($after(&mut record, &mut map, reader);)?
                Some(record)
            }

            fn write(&self) -> ::annals_base::Value {
                #[allow(unused_imports)]
                use $crate::wire::Wire as _;
                #[allow(unused_mut)]
                let mut map = ::annals_base::Map::new();
                $($crate::wire::put(&mut map, stringify!($f1), self.$f1.write());)*
                $($crate::wire::put(&mut map, stringify!($tag), $word.into());)?
                $($($crate::wire::put(&mut map, stringify!($f2), self.$f2.write());)*)?
                $($finish(self, &mut map);)?
                map.into()
            }
        }

        $crate::macros::serde_impls!($name);
    };
    (@field $reader:ident, $map:ident, $field:ident, $type:ty $(, $alias:literal)?) => {
        $reader.field::<$type>(
            &mut $map,
            &[stringify!($field) $(, $alias)?],
            <$type as $crate::wire::Wire>::absent,
        )
    };
    (@field $reader:ident, $map:ident, $field:ident, $type:ty $(, $alias:literal)? = $default:expr) => {
        $reader.field::<$type>(&mut $map, &[stringify!($field) $(, $alias)?], $default)
    };
}

/// Defines an enum that is one of a few words in JSON. After `=` stands the default of a missing field.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident $(= $default:ident)? { $($(#[$m:meta])* $variant:ident = $word:literal,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$m])* $variant,)*
        }

        impl $name {
            /// Returns the word in JSON.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// Returns the value of the word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        $(impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        })?

        impl $crate::wire::Wire for $name {
            fn read(
                value: ::annals_base::Value,
                reader: &mut $crate::wire::WireReader<'_>,
            ) -> Option<Self> {
                if let Some(word) = value.as_str()
                    && let Some(read) = Self::from_word(word)
                {
                    return Some(read);
                }
                reader.fail(concat!("one of:" $(, " ", $word)*), &value)
            }

            fn write(&self) -> ::annals_base::Value {
                self.as_str().into()
            }

            $(fn absent(_: &mut ::annals_base::DefaultSource<'_>) -> Option<Self> {
                Some(Self::$default)
            })?
        }

        $crate::macros::serde_impls!($name);
    };
}

/// Defines an enum of records that the member `tag` distinguishes. After `also` stands a kind of older documents with
/// the function that reads it.
macro_rules! variants {
    (
        $(#[$meta:meta])*
        pub enum $name:ident by $tag:literal { $($(#[$m:meta])* $variant:ident($type:ty) = $word:literal,)* }
        $(also $also:literal => $read:path;)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$m])* $variant($type),)*
        }

        impl $name {
            /// Returns the word that names the kind in JSON.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $word,)*
                }
            }
        }

        $(impl From<$type> for $name {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        })*

        impl $crate::wire::Wire for $name {
            fn read(
                value: ::annals_base::Value,
                reader: &mut $crate::wire::WireReader<'_>,
            ) -> Option<Self> {
                use $crate::wire::Wire;
                match value.get($tag).and_then(::annals_base::Value::as_str) {
                    $(Some($word) => <$type as Wire>::read(value, reader).map(Self::$variant),)*
                    $(Some($also) => $read(value, reader),)?
                    _ => {
                        let tag = value.get($tag).cloned().unwrap_or(value);
                        reader.fail(concat!("an object whose ", $tag, " is one of:" $(, " ", $word)*), &tag)
                    }
                }
            }

            fn write(&self) -> ::annals_base::Value {
                match self {
                    $(Self::$variant(value) => $crate::wire::Wire::write(value),)*
                }
            }
        }

        $crate::macros::serde_impls!($name);
    };
}

pub(super) use {record, serde_impls, variants, words};
