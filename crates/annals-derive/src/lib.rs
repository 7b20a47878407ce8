//! The derive macro of `annals`: `#[derive(State)]`.
//!
//! It emits the list of fields with their channels, and a builder for changes: calls to `annals::state`, which holds
//! the code. *Absent:* enums, lifetimes, and every decision.

mod attr;
mod engine;
mod expand;
mod part;
#[cfg(test)]
mod tests;
mod words;

/// Makes a struct with named fields the state of a graph: each field becomes a channel.
///
/// A field is a *last value* unless `#[channel(..)]` says otherwise:
///
/// | attribute | field type | what a write does |
/// | --- | --- | --- |
/// | `last` | any | replaces the value; two writes in one superstep are an error |
/// | `messages` | `Messages` | merges messages by id |
/// | `delta_messages` | `Messages` | merges messages by id; removing an unknown id is not an error |
/// | `reduce = add` | any `T` | calls `fn add(old: T, new: T) -> T` |
/// | `reduce = add, write = W` | any `T` | calls `fn add(old: T, new: W) -> T` |
/// | `append` | `List<T>` | adds items at the end |
/// | `map` | `KeyMap<T>` | puts entries by key; only these are stored |
/// | `text` | `Text` | appends to the text; only the new part is stored |
/// | `topic` | `Vec<T>` | collects the items of one superstep |
/// | `topic, accumulate` | `Vec<T>` | collects the items of all supersteps |
/// | `ephemeral` | any | replaces the value, which is gone after the next superstep |
/// | `any` | any | replaces the value; of several writes in one superstep the last counts |
/// | `untracked` | any | replaces the value, which is not stored |
/// | `remaining_steps` | `i64` | not a channel: the number of supersteps left before the recursion limit |
/// | `is_last_step` | `bool` | not a channel: true in the last superstep before the recursion limit |
///
/// Further words: `name = "other"` gives the channel another name than the field has. `private` keeps it out of the
/// input and the output of a graph. `unguarded`, with `ephemeral` and `untracked`, lets the last of several writes in
/// one superstep count, which are an error without it. `starts_empty`, with `reduce`, makes the first write the value
/// as it is; without it the channel starts with the value that the field has in the default of the struct.
///
/// For a struct `Chat` there is then a struct `ChatUpdate` with one method for each field, and `Chat::update()`, which
/// starts one. A channel with a reducer, a list, messages, a map and a text have a method `overwrite_<field>` besides,
/// which replaces the value of the channel, and a map has a method `remove_<field>`, which removes keys. `reduce`
/// stores the whole value at every change: for a value that grows, use `append`, `messages`, `map` or `text`.
///
/// `#[state(part_of = Other)]` on the struct makes it a part of another state, see `annals::state::Part`.
///
/// The code that is emitted names the engine by the dependency `annals` of the package, or by `annals-graph`, which
/// re-exports it. `#[state(crate = path)]` names it elsewhere.
///
/// The struct may have type parameters, with the bounds that its fields need; its update then has the same. The values
/// that a thread has stored are of the types that its graph was made for.
///
/// The example stands at the re-export, `annals::state::State`, where it is compiled and run: this crate does not
/// depend on `annals`, whose types the emitted code names.
#[proc_macro_derive(State, attributes(channel, state))]
pub fn derive_state(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let expanded = syn::parse(input).and_then(|input| expand::state(&input));
    expanded.unwrap_or_else(|error| error.into_compile_error()).into()
}
