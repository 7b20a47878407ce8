//! Reads `#[channel(..)]` of a field.
//!
//! *Absent:* the code that is emitted for it.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Error, ExprPath, Field, GenericArgument, Ident, LitStr, PathArguments, Result, Type};

const KNOWN: &str = "`last`, `messages`, `delta_messages`, `reduce = function`, `write = type`, `starts_empty`, `append`, `map`, `text`, `topic`, \
                     `accumulate`, `ephemeral`, `any`, `untracked`, `unguarded`, `remaining_steps`, `is_last_step`, \
                     `private`, `name = \"..\"`";

/// A field of the struct, seen as a channel.
pub(crate) struct FieldChannel<'a> {
    /// The field as it is written, `r#` included.
    pub(crate) ident: &'a Ident,
    pub(crate) ty: &'a Type,
    pub(crate) name: String,
    /// The span of the name, for errors.
    pub(crate) name_span: Span,
    pub(crate) kind: ChannelKind<'a>,
    /// True if it is left out of input and output.
    pub(crate) private: bool,
}

pub(crate) enum ChannelKind<'a> {
    /// A channel that takes a value of the field's type: the word is the name of the function in `annals::state`.
    Value(Ident),
    /// The same, for a channel that may be guarded against two writes.
    Guarded {
        word: Ident,
        guard: bool,
    },
    /// A field that the executor fills; no channel.
    Managed(Ident),
    Messages(Ident),
    Reduce {
        function: Box<ExprPath>,
        write: Option<Box<Type>>,
        starts_empty: bool,
    },
    Append {
        item: &'a Type,
    },
    Map {
        value: &'a Type,
    },
    Text,
    Topic {
        item: &'a Type,
        accumulate: bool,
    },
}

#[derive(Default)]
struct FieldWords {
    kind: Option<Ident>,
    function: Option<Box<ExprPath>>,
    write: Option<Box<Type>>,
    accumulate: Option<Span>,
    unguarded: Option<Span>,
    starts_empty: Option<Span>,
    private: Option<Span>,
    name: Option<LitStr>,
}

impl<'a> FieldChannel<'a> {
    pub(crate) fn of(field: &'a Field) -> Result<Self> {
        let Some(ident) = &field.ident else {
            return Err(Error::new(field.span(), "a channel needs a field with a name"));
        };
        if let Some(attribute) = field.attrs.iter().find(|attribute| attribute.path().is_ident("state")) {
            let message =
                format!("`#[state(..)]` goes on the struct; the channel of `{ident}` is named by `#[channel(..)]`");
            return Err(Error::new_spanned(attribute, message));
        }
        let mut words = FieldWords::default();
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("channel")) {
            attribute.parse_nested_meta(|meta| words.read(&meta))?;
        }
        let (name, name_span) = match &words.name {
            Some(name) if name.value().is_empty() => return Err(Error::new(name.span(), "a channel needs a name")),
            Some(name) => (name.value(), name.span()),
            None => (ident.unraw().to_string(), ident.span()),
        };
        let private = words.private.is_some();
        Ok(Self { ident, ty: &field.ty, name, name_span, kind: words.into_kind(&field.ty)?, private })
    }
}

impl FieldWords {
    fn read(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let unknown = || meta.error(format!("unknown word; a channel knows {KNOWN}"));
        let word = meta.path.get_ident().ok_or_else(unknown)?;
        let text = word.to_string();
        match text.as_str() {
            "last" | "messages" | "delta_messages" | "append" | "map" | "text" | "topic" | "ephemeral" | "any"
            | "untracked" | "remaining_steps" | "is_last_step" => self.set_kind(word),
            "reduce" => {
                let function = value(meta, "`reduce` needs a function: `#[channel(reduce = add)]`")?;
                self.function = Some(function);
                self.set_kind(word)
            }
            "write" => once(&mut self.write, meta, value(meta, "`write` needs a type: `write = Vec<String>`")?),
            "name" => once(&mut self.name, meta, value(meta, "`name` needs a text: `name = \"other\"`")?),
            "accumulate" => once(&mut self.accumulate, meta, word.span()),
            "unguarded" => once(&mut self.unguarded, meta, word.span()),
            "starts_empty" => once(&mut self.starts_empty, meta, word.span()),
            "private" => once(&mut self.private, meta, word.span()),
            _ => Err(unknown()),
        }
    }

    fn set_kind(&mut self, word: &Ident) -> Result<()> {
        match &self.kind {
            None => {
                self.kind = Some(word.clone());
                Ok(())
            }
            Some(first) => {
                let message = format!("a field is one channel: it is already `{first}`, so it cannot be `{word}`");
                Err(Error::new(word.span(), message))
            }
        }
    }

    fn into_kind(self, ty: &Type) -> Result<ChannelKind<'_>> {
        let word = self.kind.unwrap_or_else(|| Ident::new("last", ty.span()));
        if let (Some(write), None) = (&self.write, &self.function) {
            return Err(Error::new(write.span(), "`write` goes with `reduce = function`"));
        }
        if let Some(span) = self.accumulate
            && word != "topic"
        {
            return Err(Error::new(span, "`accumulate` goes with `topic`"));
        }
        if let Some(span) = self.unguarded
            && word != "ephemeral"
            && word != "untracked"
        {
            return Err(Error::new(span, "`unguarded` goes with `ephemeral` or `untracked`"));
        }
        if let Some(span) = self.starts_empty
            && (self.function.is_none() || self.write.is_some())
        {
            let message = "`starts_empty` goes with `reduce = function`, and not with `write`: the first write becomes \
                           the value";
            return Err(Error::new(span, message));
        }
        debug_assert!(
            self.function.is_some() == (word == "reduce"),
            "`reduce`, and no other word, comes with a function"
        );
        let (guard, starts_empty) = (self.unguarded.is_none(), self.starts_empty.is_some());
        Ok(match (word.to_string().as_str(), self.function) {
            (_, Some(function)) => ChannelKind::Reduce { function, write: self.write, starts_empty },
            ("ephemeral" | "untracked", _) => ChannelKind::Guarded { word, guard },
            ("remaining_steps" | "is_last_step", _) => ChannelKind::Managed(word),
            ("messages" | "delta_messages", _) => ChannelKind::Messages(word),
            ("append", _) => ChannelKind::Append { item: item_of(ty, "List")? },
            ("map", _) => ChannelKind::Map { value: item_of(ty, "KeyMap")? },
            ("text", _) => ChannelKind::Text,
            ("topic", _) => ChannelKind::Topic { item: item_of(ty, "Vec")?, accumulate: self.accumulate.is_some() },
            _ => ChannelKind::Value(word),
        })
    }
}

fn value<T: syn::parse::Parse>(meta: &ParseNestedMeta<'_>, needed: &str) -> Result<T> {
    let needed = |_| meta.error(needed);
    meta.value().map_err(needed)?.parse().map_err(needed)
}

fn once<T>(slot: &mut Option<T>, meta: &ParseNestedMeta<'_>, value: T) -> Result<()> {
    if slot.replace(value).is_some() {
        return Err(meta.error("this word is here twice"));
    }
    Ok(())
}

/// Returns `T` of `List<T>`. A macro sees names, not types: behind an alias there is nothing to see.
fn item_of<'a>(ty: &'a Type, list: &str) -> Result<&'a Type> {
    let arguments = match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| &segment.arguments),
        _ => None,
    };
    let mut types = match arguments {
        Some(PathArguments::AngleBracketed(arguments)) => arguments.args.iter(),
        _ => return Err(no_item(ty, list)),
    };
    match (types.next(), types.next()) {
        (Some(GenericArgument::Type(item)), None) => Ok(item),
        _ => Err(no_item(ty, list)),
    }
}

fn no_item(ty: &Type, list: &str) -> Error {
    Error::new(ty.span(), format!("the type of the items cannot be seen here; write it as `{list}<T>`"))
}
