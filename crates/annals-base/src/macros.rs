//! Declarations of what many types have: variants with a value each, and methods that set a field.

/// Declares an enum without fields, of which each variant has a value. It gets a constant of all variants, a method
/// that returns the value, and an implementation of `Display` by it if that is named behind the method.
#[doc(hidden)]
#[macro_export]
macro_rules! variants {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident => $value:expr),* $(,)? }
        $(#[$method_doc:meta])*
        $visible:vis fn $method:ident -> $type:ty $(, $display:ident)?
    ) => {
        $(#[$attribute])*
        pub enum $name {
            $($(#[$doc])* $variant),*
        }

        impl $name {
            /// All of them, in the order of their declaration.
            pub const ALL: [Self; [$(stringify!($variant)),*].len()] = [$(Self::$variant),*];

            $(#[$method_doc])*
            $visible const fn $method(self) -> $type {
                match self {
                    $(Self::$variant => $value),*
                }
            }
        }

        $(impl std::fmt::$display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.$method())
            }
        })?
    };
}

/// Declares methods that take a value, change a field of it and return it. The body begins behind `self`.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($(
        $(#[$attribute:meta])* $visible:vis fn $name:ident($($argument:ident: $type:ty),*) { $($change:tt)* }
    )*) => {
        $(
        $(#[$attribute])*
        $visible fn $name(mut self, $($argument: $type),*) -> Self {
            self $($change)*;
            self
        }
        )*
    };
}

/// Implements `Debug` by some fields of a structure; the others are not shown.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_fields {
    ($type:ident { $($field:ident),* }) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type))
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    };
}
