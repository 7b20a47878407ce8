//! Values as HTML: a tree with types and sizes, and texts of which a part is shown.

use annals::base::Value;
use annals_runs::ThreadStatus;
use annals_view::words::{self, brief, shortened, size};

use crate::address::encode;
use crate::html::Html;
use crate::limits::{STATUS_CHARS_MAX, TEXT_CHARS_MAX, TREE_NODES_MAX};

/// Nesting of a tree that is shown; deeper values are a link.
const DEPTH: usize = 12;

/// A tree of a value, as far as it fits.
pub(crate) struct ValueTree<'a> {
    /// The address of the value, for links to its parts; `None` of metadata, whose parts have no address.
    base: Option<&'a str>,
    left: usize,
}

impl<'a> ValueTree<'a> {
    /// Adds the tree of a value.
    pub(crate) fn add_to(html: &mut Html, value: &Value, base: &'a str) {
        Self::add(html, value, Some(base));
    }

    /// Adds the tree of a value that has no address.
    pub(crate) fn add_without_links(html: &mut Html, value: &Value) {
        Self::add(html, value, None);
    }

    fn add(html: &mut Html, value: &Value, base: Option<&'a str>) {
        let mut tree = Self { base, left: TREE_NODES_MAX };
        html.open("div", &[("class", "value")]);
        tree.value(html, value, "", 0);
        html.close("div");
    }

    fn value(&mut self, html: &mut Html, value: &Value, path: &str, depth: usize) {
        match value {
            Value::List(items) if depth < DEPTH => {
                let members = items.iter().enumerate().map(|(at, item)| (at.to_string(), item));
                self.members(html, members, items.len(), path, depth);
            }
            Value::Map(map) if depth < DEPTH => {
                let members = map.iter().map(|(name, item)| (name.clone(), item));
                self.members(html, members, map.len(), path, depth);
            }
            Value::List(_) | Value::Map(_) => self.link(html, path, "", &kind(value)),
            Value::Str(content) => match self.base {
                Some(base) => text(html, content, &format!("{base}{path}")),
                None => {
                    _ = html.element("pre", &[("dir", "auto"), ("class", "text")], &shortened(content, TEXT_CHARS_MAX))
                }
            },
            value => {
                html.classed("code", value.kind(), &brief(value));
                html.literal(" ").classed("span", "dim", &kind(value));
            }
        }
    }

    /// Adds a text with a link to a path, if the value has an address.
    fn link(&self, html: &mut Html, path: &str, class: &'static str, text: &str) {
        match self.base {
            Some(base) => {
                let href = format!("{base}{path}");
                html.element("a", &[("class", class), ("href", &href), ("dir", "auto")], text);
            }
            None => _ = html.element("span", &[("class", class), ("dir", "auto")], text),
        }
    }

    fn members<'v>(
        &mut self,
        html: &mut Html,
        members: impl Iterator<Item = (String, &'v Value)>,
        len: usize,
        path: &str,
        depth: usize,
    ) {
        let noun = if len == 1 { "member" } else { "members" };
        html.open("details", &[("open", "")]);
        html.within("summary", &[("class", "dim")], |html| _ = html.text(&format!("{len} {noun}")));
        html.open("ul", &[]);
        for (shown, (name, item)) in members.enumerate() {
            if self.left == 0 {
                let path = format!("{path}/{}", encode(&name));
                html.within("li", &[], |html| self.link(html, &path, "", &format!("{} more", len - shown)));
                break;
            }
            self.left -= 1;
            let path = format!("{path}/{}", encode(&name));
            html.open("li", &[]);
            self.link(html, &path, "name", &shortened(&name, 80));
            html.literal(": ");
            self.value(html, item, &path, depth + 1);
            html.close("li");
        }
        html.close("ul").close("details");
    }
}

/// Adds a text, of which the rest is a link away.
pub(crate) fn text(html: &mut Html, text: &str, address: &str) {
    let shown = text.char_indices().nth(TEXT_CHARS_MAX).map_or(text, |(end, _)| &text[..end]);
    html.element("pre", &[("dir", "auto"), ("class", "text")], shown);
    if shown.len() < text.len() {
        html.within("p", &[("class", "dim")], |html| {
            html.text(&format!("the first {} of {} · ", size(shown.len() as u64), size(text.len() as u64)));
            html.link(&format!("{address}?raw=1"), "all of it");
        });
    }
}

/// Returns the text of an interrupt, shortened.
pub(crate) fn interrupt(value: &Value) -> String {
    shortened(&words::interrupt(value), STATUS_CHARS_MAX)
}

/// Returns a status with its cause, shortened.
pub(crate) fn status_text(status: &ThreadStatus, next: &str) -> String {
    shortened(&words::status_text(status, next), STATUS_CHARS_MAX)
}

/// Returns the type of a value with its size.
pub(crate) fn kind(value: &Value) -> String {
    match value {
        Value::Str(text) => format!("text, {}", size(text.len() as u64)),
        Value::Bytes(bytes) => format!("bytes, {}", size(bytes.len() as u64)),
        Value::List(items) => format!("list of {}", items.len()),
        Value::Map(map) => format!("map of {}", map.len()),
        value => value.kind().to_owned(),
    }
}
