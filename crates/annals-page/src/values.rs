//! Values as HTML: a tree with types and sizes, and texts of which a part is shown.

use annals::base::Value;

use crate::address::encode;
use crate::html::Html;
use crate::limits::{TEXT_CHARS_MAX, TREE_NODES_MAX};
use crate::words::{brief, shortened, size};

/// Nesting of a tree that is shown; deeper values are a link.
const DEPTH: usize = 12;

/// A tree of a value, as far as it fits.
pub(crate) struct ValueTree<'a> {
    /// The address of the value, for links to its parts.
    base: &'a str,
    left: usize,
}

impl<'a> ValueTree<'a> {
    /// Adds the tree of a value.
    pub(crate) fn add_to(html: &mut Html, value: &Value, base: &'a str) {
        let mut tree = Self { base, left: TREE_NODES_MAX };
        html.open("div", &[("class", "value")]);
        tree.value(html, value, "", 0);
        html.close("div");
    }

    fn value(&mut self, html: &mut Html, value: &Value, path: &str, depth: usize) {
        let address = format!("{}{path}", self.base);
        match value {
            Value::List(items) if depth < DEPTH => {
                let members = items.iter().enumerate().map(|(at, item)| (at.to_string(), item));
                self.members(html, members, items.len(), path, depth);
            }
            Value::Map(map) if depth < DEPTH => {
                let members = map.iter().map(|(name, item)| (name.clone(), item));
                self.members(html, members, map.len(), path, depth);
            }
            Value::List(_) | Value::Map(_) => _ = html.link(&address, &kind(value)),
            Value::Str(content) => text(html, content, &address),
            value => {
                html.classed("code", value.kind(), &brief(value));
                html.literal(" ").classed("span", "dim", &kind(value));
            }
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
                let address = format!("{}{path}/{}", self.base, encode(&name));
                html.within("li", &[], |html| _ = html.link(&address, &format!("{} more", len - shown)));
                break;
            }
            self.left -= 1;
            let path = format!("{path}/{}", encode(&name));
            html.open("li", &[]);
            html.within(
                "a",
                &[("class", "name"), ("href", &format!("{}{path}", self.base)), ("dir", "auto")],
                |html| {
                    html.text(&shortened(&name, 80));
                },
            );
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
