//! The items of a file: their names, and who can see them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use syn::{Fields, ImplItem, Item, TraitItem, Visibility};

use crate::house::fnv;

/// A named item of a file, outside its tests.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    /// True if the item is declared `pub`, or belongs to a public trait or enum.
    pub(crate) is_public: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A struct, an enum, a union, a trait or an alias.
    Type,
    Const,
    /// A constant of the type `Duration`.
    Duration,
    /// A field of a struct or a variant of an enum: part of its type.
    Part,
    Other,
}

/// The items of the files that were read, by the path and the hash of the text: several rules ask for them.
static READ: Mutex<Option<HashMap<(String, u64), Arc<FileItems>>>> = Mutex::new(None);

/// The items of a file.
#[derive(Debug, Default)]
struct FileItems {
    all: Vec<Named>,
    open_structs: Vec<Named>,
}

fn read(path: &str, text: &str) -> Arc<FileItems> {
    let key = (path.to_owned(), fnv(text.as_bytes()));
    if let Some(read) = READ.lock().unwrap().get_or_insert_default().get(&key) {
        return Arc::clone(read);
    }
    let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut items = FileItems::default();
    take(&file.items, &mut items.all);
    take_open(&file.items, &mut items.open_structs);
    let items = Arc::new(items);
    READ.lock().unwrap().get_or_insert_default().insert(key, Arc::clone(&items));
    items
}

/// Returns the items of a file in their order; panics if it is not Rust.
pub(crate) fn of(path: &str, text: &str) -> Vec<Named> {
    read(path, text).all.clone()
}

fn take(items: &[Item], found: &mut Vec<Named>) {
    for item in items {
        let mut add = |ident: &syn::Ident, is_public, kind| found.push(named(ident, is_public, kind));
        match item {
            Item::Struct(item) if !of_tests(&item.attrs) => {
                add(&item.ident, seen(&item.vis), Kind::Type);
                fields(&item.fields, found);
            }
            Item::Union(item) if !of_tests(&item.attrs) => add(&item.ident, seen(&item.vis), Kind::Type),
            Item::Enum(item) if !of_tests(&item.attrs) => {
                add(&item.ident, seen(&item.vis), Kind::Type);
                found.extend(item.variants.iter().map(|variant| named(&variant.ident, seen(&item.vis), Kind::Part)));
            }
            Item::Trait(item) if !of_tests(&item.attrs) => {
                add(&item.ident, seen(&item.vis), Kind::Type);
                for inner in &item.items {
                    match inner {
                        TraitItem::Fn(inner) => add(&inner.sig.ident, seen(&item.vis), Kind::Other),
                        TraitItem::Const(inner) => add(&inner.ident, seen(&item.vis), constant(&inner.ty)),
                        TraitItem::Type(inner) => add(&inner.ident, seen(&item.vis), Kind::Other),
                        _ => {}
                    }
                }
            }
            Item::Type(item) if !of_tests(&item.attrs) => add(&item.ident, seen(&item.vis), Kind::Type),
            Item::Const(item) if !of_tests(&item.attrs) => add(&item.ident, seen(&item.vis), constant(&item.ty)),
            Item::Static(item) if !of_tests(&item.attrs) => add(&item.ident, seen(&item.vis), Kind::Other),
            Item::Fn(item) if !of_tests(&item.attrs) => add(&item.sig.ident, seen(&item.vis), Kind::Other),
            Item::Impl(item) if item.trait_.is_none() && !of_tests(&item.attrs) => {
                for inner in &item.items {
                    match inner {
                        ImplItem::Fn(inner) => add(&inner.sig.ident, seen(&inner.vis), Kind::Other),
                        ImplItem::Const(inner) => add(&inner.ident, seen(&inner.vis), constant(&inner.ty)),
                        _ => {}
                    }
                }
            }
            Item::Mod(item) if !of_tests(&item.attrs) => {
                add(&item.ident, seen(&item.vis), Kind::Other);
                if let Some((_, items)) = &item.content {
                    take(items, found);
                }
            }
            _ => {}
        }
    }
}

/// Returns the public structs of a file that a literal outside their crate can make: all fields have names and are
/// public, and the struct is exhaustive.
pub(crate) fn open_structs(path: &str, text: &str) -> Vec<Named> {
    read(path, text).open_structs.clone()
}

fn take_open(items: &[Item], found: &mut Vec<Named>) {
    for item in items {
        match item {
            Item::Struct(item) if seen(&item.vis) && !of_tests(&item.attrs) => {
                let is_open = !item.attrs.iter().any(|attribute| attribute.path().is_ident("non_exhaustive"));
                if let (Fields::Named(fields), true) = (&item.fields, is_open)
                    && !fields.named.is_empty()
                    && fields.named.iter().all(|field| seen(&field.vis))
                {
                    found.push(named(&item.ident, true, Kind::Type));
                }
            }
            Item::Mod(item) if !of_tests(&item.attrs) => {
                item.content.iter().for_each(|(_, items)| take_open(items, found));
            }
            _ => {}
        }
    }
}

fn fields(fields: &Fields, found: &mut Vec<Named>) {
    let named_fields = fields.iter().filter_map(|field| Some((field.ident.as_ref()?, seen(&field.vis))));
    found.extend(named_fields.map(|(ident, is_public)| named(ident, is_public, Kind::Part)));
}

fn named(ident: &syn::Ident, is_public: bool, kind: Kind) -> Named {
    Named { name: ident.to_string(), line: ident.span().start().line, kind, is_public }
}

/// Returns the kind of a constant of this type.
fn constant(of: &syn::Type) -> Kind {
    let is_duration = |path: &syn::Path| path.segments.last().is_some_and(|last| last.ident == "Duration");
    match of {
        syn::Type::Path(named) if is_duration(&named.path) => Kind::Duration,
        _ => Kind::Const,
    }
}

fn seen(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn of_tests(attributes: &[syn::Attribute]) -> bool {
    let is_test = |list: &syn::MetaList| list.path.is_ident("cfg") && list.tokens.to_string() == "test";
    attributes.iter().any(|attribute| matches!(&attribute.meta, syn::Meta::List(list) if is_test(list)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_that_literals_can_make_are_found() {
        let text = "pub struct A { pub a: u8 }\n#[non_exhaustive]\npub struct B { pub a: u8 }\npub struct C { pub a: u8, b: u8 }\n\
                    pub struct D(pub u8);\npub struct E {}\npub(crate) struct F { pub a: u8 }\n\
                    mod g { pub struct H { pub a: u8 } }\n#[cfg(test)]\nmod tests { pub struct I { pub a: u8 } }";
        let found = open_structs("src/a.rs", text);
        let names: Vec<(&str, usize)> = found.iter().map(|item| (item.name.as_str(), item.line)).collect();
        assert_eq!(names, [("A", 1), ("H", 8)]);
    }

    #[test]
    fn public_items_are_told_from_others() {
        let text = "pub struct A { pub a: u8, b: u8 }\npub(crate) struct B { pub c: u8 }\npub enum C { D }\nenum E { F }\n\
                    pub trait G { const H: u8; fn i(); }\nimpl A { pub fn j() {} fn k() {} }\nimpl G for A { fn i() {} }\n\
                    pub mod l { pub const M: u8 = 0; }\n#[cfg(test)]\nmod tests { pub struct N; }\npub use o::P;";
        let items = of("src/a.rs", text);
        let public: Vec<&str> = items.iter().filter(|item| item.is_public).map(|item| item.name.as_str()).collect();
        assert_eq!(public, ["A", "a", "c", "C", "D", "G", "H", "i", "j", "l", "M"]);
        let types: Vec<(&str, usize)> =
            items.iter().filter(|item| item.kind == Kind::Type).map(|item| (item.name.as_str(), item.line)).collect();
        assert_eq!(types, [("A", 1), ("B", 2), ("C", 3), ("E", 4), ("G", 5)]);
        let consts = items.iter().filter(|item| item.kind == Kind::Const).count();
        assert_eq!(consts, 2);
        let text = "const A: Duration = B;\nimpl C { const D: std::time::Duration = E; }\nconst F: &[Duration] = &[];";
        let durations = of("src/a.rs", text).iter().filter(|item| item.kind == Kind::Duration).count();
        assert_eq!(durations, 2);
    }
}
