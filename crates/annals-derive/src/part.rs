//! What is emitted for a struct that is part of another state.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Path, Result};

use crate::attr::{Channel, Kind};
use crate::expand::Names;

/// Returns the state that `#[state(part_of = ..)]` names.
pub(crate) fn whole_of(input: &DeriveInput) -> Result<Option<Path>> {
    let mut whole = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("state")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("part_of") {
                return Err(meta.error("unknown word; a state knows `part_of = type`"));
            }
            let path: Path = meta.value()?.parse()?;
            match whole.replace(path) {
                Some(_) => Err(meta.error("a state is part of one other state")),
                None => Ok(()),
            }
        })?;
    }
    Ok(whole)
}

/// Returns the code that ties a part to its whole.
pub(crate) fn emit(input: &DeriveInput, whole: &Path, channels: &[Channel<'_>]) -> TokenStream {
    let Names { state: part, update, params, bounds } = &Names::of(input);
    let shared = || channels.iter().filter(|channel| !matches!(channel.kind, Kind::Managed(_)));
    let managed = channels.iter().filter(|channel| matches!(channel.kind, Kind::Managed(_)));
    let idents: Vec<_> = shared().map(|channel| channel.ident).collect();
    let rest = managed.map(|channel| channel.ident);
    let names = channels.iter().map(|channel| &channel.name);
    let as_update = as_update(input, whole, channels);
    quote! {
        #[automatically_derived]
        impl #params ::annals::state::Part<#whole> for #part #bounds {
            fn of(state: &#whole) -> Self {
                Self {
                    #(#idents: ::std::clone::Clone::clone(&state.#idents),)*
                    #(#rest: ::std::default::Default::default(),)*
                }
            }
        }

        #[automatically_derived]
        impl #params ::annals::state::IntoUpdate<#whole> for #update #bounds {
            fn into_writes(self) -> ::annals::state::Writes {
                ::annals::state::named_writes(self.writes, &[#(#names),*])
            }
        }

        #[automatically_derived]
        impl #params ::annals::state::IntoOutput<#whole> for #update #bounds {
            fn into_output(self) -> ::annals::state::Output {
                ::annals::state::Output::update(::annals::state::IntoUpdate::<#whole>::into_writes(self))
            }
        }

        #as_update
    }
}

/// Returns the code that makes the struct itself an update. What a reducer takes may be of another type than what it
/// holds; then there is none.
fn as_update(input: &DeriveInput, whole: &Path, channels: &[Channel<'_>]) -> TokenStream {
    let Names { state: part, update, params, bounds } = &Names::of(input);
    if channels.iter().any(|channel| matches!(channel.kind, Kind::Reduce { write: Some(_), .. })) {
        return TokenStream::new();
    }
    let writes = channels.iter().filter(|channel| !matches!(channel.kind, Kind::Managed(_))).map(write);
    quote! {
        #[automatically_derived]
        impl #params ::std::convert::From<#part> for #update #bounds {
            fn from(part: #part) -> Self {
                let update = <#part as ::annals::state::State>::update();
                #(#writes)*
                update
            }
        }

        #[automatically_derived]
        impl #params ::std::convert::From<#part> for ::annals::state::Writes #bounds {
            fn from(part: #part) -> Self {
                ::annals::state::IntoUpdate::<#whole>::into_writes(part)
            }
        }

        #[automatically_derived]
        impl #params ::annals::state::IntoUpdate<#whole> for #part #bounds {
            fn into_writes(self) -> ::annals::state::Writes {
                let update: #update = ::std::convert::Into::into(self);
                ::annals::state::IntoUpdate::<#whole>::into_writes(update)
            }
        }

        #[automatically_derived]
        impl #params ::annals::state::IntoOutput<#whole> for #part #bounds {
            fn into_output(self) -> ::annals::state::Output {
                ::annals::state::Output::update(::annals::state::IntoUpdate::<#whole>::into_writes(self))
            }
        }

    }
}

/// Returns the statement that writes a field as a whole.
fn write(channel: &Channel<'_>) -> TokenStream {
    let ident = channel.ident;
    match channel.kind {
        Kind::Messages(_) | Kind::Append { .. } => quote!(let update = update.#ident(part.#ident.to_vec());),
        _ => quote!(let update = update.#ident(part.#ident);),
    }
}
