//! Reads `#[state(..)]` of the struct.
//!
//! *Absent:* the attributes of its fields.

use syn::{DeriveInput, Error, Path, Result};

/// The words of `#[state(..)]`.
#[derive(Default)]
pub(crate) struct StateWords {
    /// `crate = path`: the path of the crate `annals` in the code that is emitted.
    pub(crate) engine: Option<Path>,
    /// `part_of = type`: the state that this one is part of.
    pub(crate) whole: Option<Path>,
}

/// Returns the words of a struct.
pub(crate) fn of(input: &DeriveInput) -> Result<StateWords> {
    if let Some(attribute) = input.attrs.iter().find(|attribute| attribute.path().is_ident("channel")) {
        let message = "`#[channel(..)]` goes on a field; the words of the struct stand in `#[state(..)]`";
        return Err(Error::new_spanned(attribute, message));
    }
    let mut words = StateWords::default();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("state")) {
        attribute.parse_nested_meta(|meta| {
            let (slot, twice) = if meta.path.is_ident("part_of") {
                (&mut words.whole, "a state is part of one other state")
            } else if meta.path.is_ident("crate") {
                (&mut words.engine, "`crate` is given twice")
            } else {
                return Err(meta.error("unknown word; a state knows `part_of = type` and `crate = path`"));
            };
            match slot.replace(meta.value()?.parse()?) {
                Some(_) => Err(meta.error(twice)),
                None => Ok(()),
            }
        })?;
    }
    Ok(words)
}
