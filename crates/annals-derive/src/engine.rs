//! Finds the crate `annals` among the dependencies of the program.
//!
//! The manifest of the package that is compiled decides: `annals`, under whatever name, else the `annals` that
//! `annals-graph` re-exports. `#[state(crate = path)]` needs neither.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Error, Ident, Result};

/// Returns the path of the crate `annals` in the program that is compiled.
pub(crate) fn path(span: Span) -> Result<TokenStream> {
    let name_of = |package| Some(ident(&crate_name(package).ok()?, package));
    if let Some(annals) = name_of("annals") {
        return Ok(quote!(::#annals));
    }
    if let Some(graph) = name_of("annals-graph") {
        return Ok(quote!(::#graph::annals));
    }
    let message = "`#[derive(State)]` found neither `annals` nor `annals-graph` among the dependencies; name the engine \
                   with `#[state(crate = path::to::annals)]`";
    Err(Error::new(span, message))
}

fn ident(found: &FoundCrate, package: &str) -> Ident {
    let name = match found {
        FoundCrate::Name(name) => name.clone(),
        // The crate itself, its tests and its examples: it names itself by `extern crate self`.
        FoundCrate::Itself => package.replace('-', "_"),
    };
    Ident::new(&name, Span::call_site())
}
