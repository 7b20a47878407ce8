//! Emits the code of a struct that is part of another state.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Path;

use crate::attr::{ChannelKind, FieldChannel};
use crate::expand::StateNames;

/// Returns the code that ties a part to its whole.
pub(crate) fn emit(names: &StateNames, whole: &Path, channels: &[FieldChannel<'_>]) -> TokenStream {
    let StateNames { engine, state: part, update, params, bounds } = names;
    let shared = || channels.iter().filter(|channel| !matches!(channel.kind, ChannelKind::Managed(_)));
    let managed = channels.iter().filter(|channel| matches!(channel.kind, ChannelKind::Managed(_)));
    let idents: Vec<_> = shared().map(|channel| channel.ident).collect();
    let rest = managed.map(|channel| channel.ident);
    let channel_names = channels.iter().map(|channel| &channel.name);
    let as_update = as_update(names, whole, channels);
    quote! {
        #[automatically_derived]
        impl #params #engine::state::Part<#whole> for #part #bounds {
            fn of(state: &#whole) -> Self {
                Self {
                    #(#idents: ::std::clone::Clone::clone(&state.#idents),)*
                    #(#rest: ::std::default::Default::default(),)*
                }
            }
        }

        #[automatically_derived]
        impl #params #engine::state::IntoUpdate<#whole> for #update #bounds {
            fn into_writes(self) -> #engine::state::Writes {
                #engine::state::named_writes(self.writes, &[#(#channel_names),*])
            }
        }

        #[automatically_derived]
        impl #params #engine::state::IntoOutput<#whole> for #update #bounds {
            fn into_output(self) -> #engine::state::Output {
                #engine::state::Output::update(#engine::state::IntoUpdate::<#whole>::into_writes(self))
            }
        }

        #as_update
    }
}

/// Returns the code that makes the struct itself an update. It is empty if a reducer takes another type than it holds.
fn as_update(names: &StateNames, whole: &Path, channels: &[FieldChannel<'_>]) -> TokenStream {
    let StateNames { engine, state: part, update, params, bounds } = names;
    if channels.iter().any(|channel| matches!(channel.kind, ChannelKind::Reduce { write: Some(_), .. })) {
        return TokenStream::new();
    }
    let writes = channels.iter().filter(|channel| !matches!(channel.kind, ChannelKind::Managed(_))).map(write);
    quote! {
        #[automatically_derived]
        impl #params ::std::convert::From<#part> for #update #bounds {
            fn from(part: #part) -> Self {
                let update = <#part as #engine::state::State>::update();
                #(#writes)*
                update
            }
        }

        #[automatically_derived]
        impl #params ::std::convert::From<#part> for #engine::state::Writes #bounds {
            fn from(part: #part) -> Self {
                #engine::state::IntoUpdate::<#whole>::into_writes(part)
            }
        }

        #[automatically_derived]
        impl #params #engine::state::IntoUpdate<#whole> for #part #bounds {
            fn into_writes(self) -> #engine::state::Writes {
                let update: #update = ::std::convert::Into::into(self);
                #engine::state::IntoUpdate::<#whole>::into_writes(update)
            }
        }

        #[automatically_derived]
        impl #params #engine::state::IntoOutput<#whole> for #part #bounds {
            fn into_output(self) -> #engine::state::Output {
                #engine::state::Output::update(#engine::state::IntoUpdate::<#whole>::into_writes(self))
            }
        }

    }
}

/// Returns the statement that writes a field as a whole.
fn write(channel: &FieldChannel<'_>) -> TokenStream {
    let ident = channel.ident;
    match channel.kind {
        ChannelKind::Messages(_) | ChannelKind::Append { .. } => {
            quote!(let update = update.#ident(part.#ident.to_vec());)
        }
        ChannelKind::Map { .. } => quote!(let update = update.#ident(part.#ident.to_btree_map());),
        ChannelKind::Text => quote!(let update = update.#ident(::std::string::ToString::to_string(&part.#ident));),
        _ => quote!(let update = update.#ident(part.#ident);),
    }
}
