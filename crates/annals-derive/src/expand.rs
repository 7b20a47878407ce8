//! Emits the code of a struct. Each field is one call to `annals::state`; *absent:* any logic of channels.

use std::collections::HashSet;

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Ident, Result, Type};

use crate::attr::{ChannelKind, FieldChannel};
use crate::engine;
use crate::part;
use crate::words::{self, StateWords};

/// Returns the code of `#[derive(State)]`, or all errors at once.
pub(crate) fn state(input: &DeriveInput) -> Result<TokenStream> {
    let fields = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => &fields.named,
            Fields::Unnamed(_) | Fields::Unit => return Err(refused(input, "a struct without named fields")),
        },
        Data::Enum(_) => return Err(refused(input, "an enum")),
        Data::Union(_) => return Err(refused(input, "a union")),
    };
    if let Some(lifetime) = input.generics.lifetimes().next() {
        return Err(Error::new(lifetime.span(), "a state holds no references: it outlives the run that made it"));
    }
    let mut channels = Vec::new();
    let mut errors: Option<Error> = None;
    let mut add = |error| match &mut errors {
        None => errors = Some(error),
        Some(all) => all.combine(error),
    };
    let mut names = HashSet::new();
    for field in fields {
        match FieldChannel::of(field) {
            Ok(channel) if !names.insert(channel.name.clone()) => {
                add(Error::new(channel.name_span, format!("another field is already the channel {:?}", channel.name)));
            }
            Ok(channel) => channels.push(channel),
            Err(error) => add(error),
        }
    }
    let words = words::of(input).unwrap_or_else(|error| {
        add(error);
        StateWords::default()
    });
    if let Some(error) = errors {
        return Err(error);
    }
    let engine = match words.engine {
        Some(path) => quote!(#path),
        None => engine::path(input.ident.span())?,
    };
    debug_assert_eq!(channels.len(), fields.len(), "each field without an error is a channel");
    let names = StateNames::of(input, engine);
    let mut code = emit(input, &names, &channels);
    code.extend(words.whole.map(|whole| part::emit(&names, &whole, &channels)));
    Ok(code)
}

fn refused(input: &DeriveInput, what: &str) -> Error {
    Error::new(input.ident.span(), format!("a state is a struct with named fields, not {what}"))
}

/// The path of the engine, and the names of a state and its update with their parameters.
pub(crate) struct StateNames {
    /// The path of the crate `annals` in the code that is emitted.
    pub(crate) engine: TokenStream,
    /// The type of the state.
    pub(crate) state: TokenStream,
    /// The type of its update.
    pub(crate) update: TokenStream,
    /// The generic parameters of an `impl`.
    pub(crate) params: TokenStream,
    /// The `where` clause.
    pub(crate) bounds: TokenStream,
}

impl StateNames {
    fn of(input: &DeriveInput, engine: TokenStream) -> Self {
        let (state, update) = (&input.ident, update_of(input));
        let (params, args, bounds) = input.generics.split_for_impl();
        Self {
            engine,
            state: quote!(#state #args),
            update: quote!(#update #args),
            params: quote!(#params),
            bounds: quote!(#bounds),
        }
    }
}

fn update_of(input: &DeriveInput) -> Ident {
    format_ident!("{}Update", input.ident.unraw(), span = input.ident.span())
}

fn emit(input: &DeriveInput, names: &StateNames, channels: &[FieldChannel<'_>]) -> TokenStream {
    let StateNames { engine, state, update, params, bounds } = names;
    let fields = channels.iter().map(|channel| field(names, channel));
    let setters = channels.iter().enumerate().map(|(index, channel)| setter(engine, index, channel));
    let made = update_struct(input, names);
    quote! {
        #[automatically_derived]
        impl #params #engine::state::State for #state #bounds {
            type Update = #update;

            fn fields() -> ::std::vec::Vec<#engine::state::Field<Self>> {
                ::std::vec![#(#fields),*]
            }

            fn update() -> #update {
                <#update as ::std::default::Default>::default()
            }
        }

        #[automatically_derived]
        impl #params #engine::state::IntoOutput<#state> for #update #bounds {
            fn into_output(self) -> #engine::state::Output {
                #engine::state::Output::update(::std::convert::Into::into(self))
            }
        }

        #made

        #[allow(dead_code, unreachable_pub)]
        impl #params #update #bounds {
            #(#setters)*
        }

        #[automatically_derived]
        impl #params #engine::state::IntoUpdate<#state> for #update #bounds {
            fn into_writes(self) -> #engine::state::Writes {
                ::std::convert::Into::into(self)
            }
        }

        #[automatically_derived]
        impl #params ::std::convert::From<#update> for #engine::state::Writes #bounds {
            fn from(update: #update) -> Self {
                update.writes.of::<#state>()
            }
        }
    }
}

/// Returns the struct of the update. It has the generic parameters of the state, without requiring anything of them.
fn update_struct(input: &DeriveInput, names: &StateNames) -> TokenStream {
    let (vis, name) = (&input.vis, update_of(input));
    let StateNames { engine, state, update, params, bounds } = names;
    let docs =
        format!("A change to [`{}`]: what is set here is written, the rest stays as it is.", input.ident.unraw());
    let attributes = quote! {
        #[doc = #docs]
        #[must_use = "a change does nothing until it is given to a graph or returned by a node"]
    };
    if input.generics.params.is_empty() {
        return quote! {
            #attributes
            #[derive(::std::clone::Clone, ::std::default::Default)]
            #vis struct #name {
                writes: #engine::state::Writes,
            }
        };
    }
    let declared = &input.generics;
    quote! {
        #attributes
        #vis struct #name #declared #bounds {
            writes: #engine::state::Writes,
            state: ::std::marker::PhantomData<fn() -> #state>,
        }

        #[automatically_derived]
        impl #params ::std::clone::Clone for #update #bounds {
            fn clone(&self) -> Self {
                Self { writes: ::std::clone::Clone::clone(&self.writes), state: ::std::marker::PhantomData }
            }
        }

        #[automatically_derived]
        impl #params ::std::default::Default for #update #bounds {
            fn default() -> Self {
                Self { writes: ::std::default::Default::default(), state: ::std::marker::PhantomData }
            }
        }
    }
}

/// Returns the call that describes a field: the name of its channel, and the access to the field. The compiler blames
/// the type of the field, or its reducer, for a call that does not type-check.
fn field(names: &StateNames, channel: &FieldChannel<'_>) -> TokenStream {
    let FieldChannel { ident, ty, name, kind, .. } = channel;
    let (state, span) = (&names.state, ty.span());
    let call = |word: &str, span: Span| {
        let (engine, word) = (respanned(&names.engine, span), Ident::new(word, span));
        quote_spanned!(span=> #engine::state::Field::#word)
    };
    let reach = quote_spanned!(span=> |s: &#state| &s.#ident, |s: &mut #state| &mut s.#ident);
    let field = match kind {
        ChannelKind::Value(word) | ChannelKind::Messages(word) => {
            let call = call(&word.to_string(), span);
            quote!(#call(#name, #reach))
        }
        ChannelKind::Guarded { word, guard } => {
            let call = call(&word.to_string(), span);
            quote!(#call(#name, #guard, #reach))
        }
        ChannelKind::Managed(word) => {
            let call = call(&word.to_string(), span);
            let set = quote_spanned!(span=> |s: &mut #state, value: #ty| s.#ident = value);
            let get = quote_spanned!(span=> |s: &#state| s.#ident);
            quote!(#call(#name, #set, #get))
        }
        ChannelKind::Append { .. } => {
            let call = call("append", span);
            quote!(#call(#name, #reach))
        }
        ChannelKind::Map { .. } => {
            let call = call("map", span);
            quote!(#call(#name, #reach))
        }
        ChannelKind::Text => {
            let call = call("text", span);
            quote!(#call(#name, #reach))
        }
        ChannelKind::Topic { accumulate, .. } => {
            let call = call("topic", span);
            quote!(#call(#name, #accumulate, #reach))
        }
        ChannelKind::Reduce { function, starts_empty: true, .. } => {
            let call = call("reduce_first", function.span());
            quote!(#call::<#ty, _>(#name, #function, #reach))
        }
        ChannelKind::Reduce { function, write, .. } => {
            let (call, write) = (call("reduce", function.span()), write.as_deref().unwrap_or(ty));
            quote!(#call::<#ty, #write, _>(#name, #function, #reach))
        }
    };
    if channel.private { quote!(#field.private()) } else { field }
}

/// Returns tokens of a path as if they stood at `span`.
fn respanned(path: &TokenStream, span: Span) -> TokenStream {
    let at = |mut token: TokenTree| {
        token.set_span(span);
        token
    };
    path.clone().into_iter().map(at).collect()
}

/// Returns the method of the update that writes a channel.
fn setter(engine: &TokenStream, index: usize, channel: &FieldChannel<'_>) -> TokenStream {
    let FieldChannel { ident, ty, name, kind, .. } = channel;
    let index = syn::Index::from(index);
    let overwrite = format_ident!("overwrite_{}", ident.unraw(), span = ident.span());
    let replaces =
        format!("Replaces what the channel `{name}` holds, whatever else is written to it in this superstep.");
    let collect = |verb: &str, item: &TokenStream| {
        let docs = format!("{verb} the channel `{name}`.");
        quote! {
            #[doc = #docs]
            pub fn #ident(mut self, items: impl ::std::iter::IntoIterator<Item = #item>) -> Self {
                let items: ::std::vec::Vec<#item> = ::std::iter::Iterator::collect(::std::iter::IntoIterator::into_iter(items));
                self.writes.push::<::std::vec::Vec<#item>>(#index, items);
                self
            }
        }
    };
    let list = |verb: &str, item: TokenStream| {
        let collect = collect(verb, &item);
        quote! {
            #collect

            #[doc = #replaces]
            pub fn #overwrite(mut self, items: impl ::std::iter::IntoIterator<Item = #item>) -> Self {
                let items: ::std::vec::Vec<#item> = ::std::iter::Iterator::collect(::std::iter::IntoIterator::into_iter(items));
                self.writes.push(#index, #engine::state::Overwrite::<::std::vec::Vec<#item>>(items));
                self
            }
        }
    };
    let value = |ty: &Type| {
        let docs = format!("Writes the channel `{name}`.");
        // A literal has no type yet when `Into` looks for its source: `count(1)` would not compile for a `u64`.
        let (parameter, value) = match is_number(ty) {
            true => (quote!(#ty), quote!(value)),
            false => (quote!(impl ::std::convert::Into<#ty>), quote!(::std::convert::Into::into(value))),
        };
        quote! {
            #[doc = #docs]
            pub fn #ident(mut self, value: #parameter) -> Self {
                self.writes.push::<#ty>(#index, #value);
                self
            }
        }
    };
    match kind {
        ChannelKind::Messages(_) => list("Merges messages into", quote!(#engine::message::Message)),
        ChannelKind::Append { item } => list("Adds items to", quote!(#item)),
        ChannelKind::Map { value } => map(engine, &index, channel, value),
        ChannelKind::Text => text(engine, &index, channel),
        ChannelKind::Topic { item, .. } => collect("Sends items to", &quote!(#item)),
        ChannelKind::Reduce { write, .. } => {
            let write = value(write.as_deref().unwrap_or(ty));
            quote! {
                #write

                #[doc = #replaces]
                pub fn #overwrite(mut self, value: #ty) -> Self {
                    self.writes.push(#index, #engine::state::Overwrite::<#ty>(value));
                    self
                }
            }
        }
        ChannelKind::Value(_) | ChannelKind::Guarded { .. } => value(ty),
        ChannelKind::Managed(_) => TokenStream::new(),
    }
}

/// Returns the methods of the update that change a map channel.
fn map(engine: &TokenStream, index: &syn::Index, channel: &FieldChannel<'_>, value: &Type) -> TokenStream {
    let FieldChannel { ident, name, .. } = channel;
    debug_assert!(matches!(channel.kind, ChannelKind::Map { .. }), "a map has these methods");
    let of = |verb: &str| format_ident!("{verb}_{}", ident.unraw(), span = ident.span());
    let (remove, overwrite) = (of("remove"), of("overwrite"));
    let puts = format!("Puts entries into the channel `{name}`, each in place of the one with its key.");
    let removes = format!("Removes keys from the channel `{name}`. They need not be there.");
    let replaces =
        format!("Replaces the entries of the channel `{name}`, whatever else is written to it in this superstep.");
    let entry = quote!(#engine::state::MapEntry::<#value>);
    let entries = quote! {
        entries: impl ::std::iter::IntoIterator<Item = (impl ::std::convert::Into<::std::sync::Arc<str>>, #value)>
    };
    let collect = quote! {
        let entries = ::std::iter::IntoIterator::into_iter(entries);
        let entries = ::std::iter::Iterator::map(entries, |(key, value)| #entry::put(key, value));
        let entries: ::std::vec::Vec<#entry> = ::std::iter::Iterator::collect(entries);
    };
    quote! {
        #[doc = #puts]
        pub fn #ident(mut self, #entries) -> Self {
            #collect
            self.writes.push(#index, entries);
            self
        }

        #[doc = #removes]
        pub fn #remove(
            mut self,
            keys: impl ::std::iter::IntoIterator<Item = impl ::std::convert::Into<::std::sync::Arc<str>>>,
        ) -> Self {
            let keys = ::std::iter::IntoIterator::into_iter(keys);
            let keys = ::std::iter::Iterator::map(keys, |key| #entry::remove(key));
            let keys: ::std::vec::Vec<#entry> = ::std::iter::Iterator::collect(keys);
            self.writes.push(#index, keys);
            self
        }

        #[doc = #replaces]
        pub fn #overwrite(mut self, #entries) -> Self {
            #collect
            self.writes.push(#index, #engine::state::Overwrite::<::std::vec::Vec<#entry>>(entries));
            self
        }
    }
}

/// Returns the methods of the update that change a text channel.
fn text(engine: &TokenStream, index: &syn::Index, channel: &FieldChannel<'_>) -> TokenStream {
    let FieldChannel { ident, name, .. } = channel;
    let overwrite = format_ident!("overwrite_{}", ident.unraw(), span = ident.span());
    let appends = format!("Appends to the text of the channel `{name}`.");
    let replaces =
        format!("Replaces the text of the channel `{name}`, whatever else is written to it in this superstep.");
    quote! {
        #[doc = #appends]
        pub fn #ident(mut self, part: impl ::std::convert::Into<::std::string::String>) -> Self {
            let part: ::std::string::String = ::std::convert::Into::into(part);
            self.writes.push(#index, ::std::vec![part]);
            self
        }

        #[doc = #replaces]
        pub fn #overwrite(mut self, text: impl ::std::convert::Into<::std::string::String>) -> Self {
            let text: ::std::string::String = ::std::convert::Into::into(text);
            self.writes.push(#index, #engine::state::Overwrite::<::std::vec::Vec<::std::string::String>>(::std::vec![text]));
            self
        }
    }
}

fn is_number(ty: &Type) -> bool {
    const NUMBERS: [&str; 14] =
        ["i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128", "usize", "f32", "f64"];
    matches!(ty, Type::Path(path) if NUMBERS.iter().any(|number| path.path.is_ident(number)))
}
