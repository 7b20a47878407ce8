//! Enums whose variants have a value each: a name, a text or a row of numbers.

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
