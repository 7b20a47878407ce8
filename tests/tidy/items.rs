//! The items of a file: their names, and who can see them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use proc_macro2::TokenTree;
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
    /// True if rustdoc does not list the item: it is `#[doc(hidden)]`, or belongs to a type that is.
    pub(crate) is_hidden: bool,
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
    let hidden: Vec<String> = items.iter().filter_map(hidden_type).collect();
    for item in items {
        let first = found.len();
        take_item(item, found);
        let is_hidden = match item {
            Item::Trait(item) => hides(&item.attrs),
            Item::Mod(item) => hides(&item.attrs),
            Item::Impl(item) => matches!(&*item.self_ty, syn::Type::Path(of)
                if of.path.segments.last().is_some_and(|last| hidden.iter().any(|name| last.ident == name))),
            _ => false,
        };
        found[first..].iter_mut().for_each(|item| item.is_hidden |= is_hidden);
    }
}

/// Returns the name of a type that rustdoc does not list.
fn hidden_type(item: &Item) -> Option<String> {
    let (ident, attributes) = match item {
        Item::Struct(item) => (&item.ident, &item.attrs),
        Item::Enum(item) => (&item.ident, &item.attrs),
        _ => return None,
    };
    hides(attributes).then(|| ident.to_string())
}

fn take_item(item: &Item, found: &mut Vec<Named>) {
    let mut add = |ident: &syn::Ident, attributes: &[syn::Attribute], is_public, kind| {
        found.push(Named { is_hidden: hides(attributes), ..named(ident, is_public, kind) });
    };
    match item {
        Item::Struct(item) if !of_tests(&item.attrs) => {
            add(&item.ident, &item.attrs, seen(&item.vis), Kind::Type);
            fields(&item.fields, found);
        }
        Item::Union(item) if !of_tests(&item.attrs) => add(&item.ident, &item.attrs, seen(&item.vis), Kind::Type),
        Item::Enum(item) if !of_tests(&item.attrs) => {
            add(&item.ident, &item.attrs, seen(&item.vis), Kind::Type);
            found.extend(item.variants.iter().map(|variant| named(&variant.ident, seen(&item.vis), Kind::Part)));
        }
        Item::Trait(item) if !of_tests(&item.attrs) => {
            add(&item.ident, &item.attrs, seen(&item.vis), Kind::Type);
            for inner in &item.items {
                match inner {
                    TraitItem::Fn(inner) => add(&inner.sig.ident, &inner.attrs, seen(&item.vis), Kind::Other),
                    TraitItem::Const(inner) => add(&inner.ident, &inner.attrs, seen(&item.vis), constant(&inner.ty)),
                    TraitItem::Type(inner) => add(&inner.ident, &inner.attrs, seen(&item.vis), Kind::Other),
                    _ => {}
                }
            }
        }
        Item::Type(item) if !of_tests(&item.attrs) => add(&item.ident, &item.attrs, seen(&item.vis), Kind::Type),
        Item::Const(item) if !of_tests(&item.attrs) => {
            add(&item.ident, &item.attrs, seen(&item.vis), constant(&item.ty));
        }
        Item::Static(item) if !of_tests(&item.attrs) => add(&item.ident, &item.attrs, seen(&item.vis), Kind::Other),
        Item::Fn(item) if !of_tests(&item.attrs) => add(&item.sig.ident, &item.attrs, seen(&item.vis), Kind::Other),
        Item::Impl(item) if item.trait_.is_none() && !of_tests(&item.attrs) => {
            for inner in &item.items {
                match inner {
                    ImplItem::Fn(inner) => add(&inner.sig.ident, &inner.attrs, seen(&inner.vis), Kind::Other),
                    ImplItem::Const(inner) => add(&inner.ident, &inner.attrs, seen(&inner.vis), constant(&inner.ty)),
                    _ => {}
                }
            }
            for inner in &item.items {
                if let ImplItem::Macro(inner) = inner {
                    found.extend(declared(&inner.mac));
                }
            }
        }
        // Not the definition of a macro.
        Item::Macro(item) if item.ident.is_none() && !of_tests(&item.attrs) => found.extend(declared(&item.mac)),
        Item::Mod(item) if !of_tests(&item.attrs) => {
            add(&item.ident, &item.attrs, seen(&item.vis), Kind::Other);
            if let Some((_, items)) = &item.content {
                take(items, found);
            }
        }
        _ => {}
    }
}

/// Returns the public items that a call of a macro declares, if they are written as they are elsewhere: `pub fn name`.
fn declared(call: &syn::Macro) -> Vec<Named> {
    let ident = |token: TokenTree| if let TokenTree::Ident(ident) = token { Some(ident) } else { None };
    let tokens: Vec<Option<syn::Ident>> = call.tokens.clone().into_iter().map(ident).collect();
    let items = tokens.windows(3).filter_map(|words| {
        let [Some(public), Some(word), Some(name)] = words else { return None };
        let kind = match word.to_string().as_str() {
            "struct" | "enum" | "trait" | "type" => Kind::Type,
            "fn" => Kind::Other,
            _ => return None,
        };
        (public == "pub").then(|| named(name, true, kind))
    });
    items.collect()
}

/// Returns the names that rustdoc lists on the page of a module: its public modules, items and re-exports.
pub(crate) fn page(path: &str, text: &str) -> Vec<String> {
    fn leaves(tree: &syn::UseTree, found: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => leaves(&path.tree, found),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, found)),
            syn::UseTree::Name(name) => found.push(name.ident.to_string()),
            syn::UseTree::Rename(name) => found.push(name.rename.to_string()),
            syn::UseTree::Glob(_) => found.push("*".into()),
        }
    }
    let shown = of(path, text).into_iter().filter(|item| item.is_public && !item.is_hidden && item.kind != Kind::Part);
    let mut found: Vec<String> = shown.map(|item| item.name).collect();
    let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
    for item in &file.items {
        if let Item::Use(item) = item
            && seen(&item.vis)
            && !hides(&item.attrs)
        {
            leaves(&item.tree, &mut found);
        }
    }
    found
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
    Named { name: ident.to_string(), line: ident.span().start().line, kind, is_public, is_hidden: false }
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

fn hides(attributes: &[syn::Attribute]) -> bool {
    let is_hidden = |list: &syn::MetaList| list.path.is_ident("doc") && list.tokens.to_string() == "hidden";
    attributes.iter().any(|attribute| matches!(&attribute.meta, syn::Meta::List(list) if is_hidden(list)))
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
    fn items_that_rustdoc_does_not_list_are_told_from_others() {
        let text = "#[doc(hidden)]\npub struct A;\nimpl A { pub fn b() {} }\npub struct C;\n\
                    impl C { pub fn d() {}\n#[doc(hidden)]\npub fn e() {} }\n#[doc(hidden)]\npub trait F { fn g(); }";
        let hidden: Vec<String> =
            of("src/a.rs", text).into_iter().filter(|item| item.is_hidden).map(|item| item.name).collect();
        assert_eq!(hidden, ["A", "b", "e", "F", "g"]);
    }

    #[test]
    fn items_that_calls_of_macros_declare_are_found() {
        let text = "variants! {\n/// Doc.\npub enum A { B => \"b\" }\npub fn c -> u8, Display\n}\nimpl D { setters! {\n\
                    #[must_use]\npub fn e(f: u8) { .f = f }\npub(super) fn g() { .f = 0 }\nfn h() {} } }\n\
                    macro_rules! i { () => { pub fn j() {} } }";
        let found: Vec<(String, usize)> = of("src/a.rs", text).into_iter().map(|item| (item.name, item.line)).collect();
        assert_eq!(found, [("A".to_owned(), 3), ("c".to_owned(), 4), ("e".to_owned(), 8)]);
    }

    #[test]
    fn the_page_of_a_module_has_its_items_and_re_exports() {
        let text = "pub mod a;\nmod b;\npub use b::{C, d::E as F};\npub(crate) use b::G;\npub struct H { pub i: u8 }";
        assert_eq!(page("src/a.rs", text), ["a", "H", "C", "F"]);
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
