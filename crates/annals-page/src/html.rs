//! The writer of HTML. Invariant: data enters a document only through [`Html::text`] and attribute values, which escape
//! it; markup is written by literals of this program.

use std::fmt::Write as _;

/// A part of an HTML document.
#[derive(Clone, Debug, Default)]
pub(crate) struct Html {
    markup: String,
}

/// The attributes of an element: names are literals, values are data.
pub(crate) type Attributes<'a> = &'a [(&'static str, &'a str)];

impl Html {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds markup that the program holds as a literal.
    pub(crate) fn literal(&mut self, markup: &'static str) -> &mut Self {
        self.markup.push_str(markup);
        self
    }

    /// Adds a text, escaped.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        escape_into(text, &mut self.markup);
        self
    }

    /// Adds another part.
    pub(crate) fn add(&mut self, part: &Html) -> &mut Self {
        self.markup.push_str(&part.markup);
        self
    }

    /// Opens an element.
    pub(crate) fn open(&mut self, tag: &'static str, attributes: Attributes<'_>) -> &mut Self {
        debug_assert!(tag.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{tag} is the name of an element");
        self.markup.push('<');
        self.markup.push_str(tag);
        for (name, value) in attributes {
            debug_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{name} is a name");
            debug_assert!(
                !name.starts_with("on") && *name != "style",
                "the policy allows neither scripts nor styles here"
            );
            self.markup.push(' ');
            self.markup.push_str(name);
            self.markup.push_str("=\"");
            escape_into(value, &mut self.markup);
            self.markup.push('"');
        }
        self.markup.push('>');
        self
    }

    /// Closes an element.
    pub(crate) fn close(&mut self, tag: &'static str) -> &mut Self {
        _ = write!(self.markup, "</{tag}>");
        self
    }

    /// Adds an element with a text.
    pub(crate) fn element(&mut self, tag: &'static str, attributes: Attributes<'_>, text: &str) -> &mut Self {
        self.open(tag, attributes).text(text).close(tag)
    }

    /// Adds an element with a class and a text.
    pub(crate) fn classed(&mut self, tag: &'static str, class: &str, text: &str) -> &mut Self {
        self.element(tag, &[("class", class)], text)
    }

    /// Adds a link within this server.
    pub(crate) fn link(&mut self, href: &str, text: &str) -> &mut Self {
        debug_assert!(
            href.starts_with('/') || href.starts_with('?') || href.starts_with('#'),
            "{href} is of this server"
        );
        self.element("a", &[("href", href)], text)
    }

    /// Adds an element whose content a function writes.
    pub(crate) fn within(
        &mut self,
        tag: &'static str,
        attributes: Attributes<'_>,
        content: impl FnOnce(&mut Self),
    ) -> &mut Self {
        self.open(tag, attributes);
        content(self);
        self.close(tag)
    }

    /// Returns the markup.
    pub(crate) fn into_markup(self) -> String {
        debug_assert!(!self.markup.contains('\0'), "a document has no NUL");
        self.markup
    }
}

/// Returns whether a character controls the layout of the text around it.
pub(crate) fn is_steering(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t' | '\r'))
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// Adds a text to markup: characters with a meaning in HTML become references, and those that steer the layout are
/// named.
fn escape_into(text: &str, markup: &mut String) {
    markup.reserve(text.len());
    for c in text.chars() {
        match c {
            '&' => markup.push_str("&amp;"),
            '<' => markup.push_str("&lt;"),
            '>' => markup.push_str("&gt;"),
            '"' => markup.push_str("&quot;"),
            '\'' => markup.push_str("&#39;"),
            '\r' => markup.push_str("&#13;"),
            c if is_steering(c) => _ = write!(markup, "\\u{{{:x}}}", u32::from(c)),
            c => markup.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_never_markup() {
        let mut html = Html::new();
        html.element("p", &[("title", "\"><script>alert(1)</script>")], "<b onclick='x'>&amp;\u{202e}\0</b>");
        assert_eq!(
            html.into_markup(),
            "<p title=\"&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;\">\
             &lt;b onclick=&#39;x&#39;&gt;&amp;amp;\\u{202e}\\u{0}&lt;/b&gt;</p>"
        );
    }

    #[test]
    fn elements_nest() {
        let mut html = Html::new();
        html.within("ul", &[("class", "a")], |html| {
            html.within("li", &[], |html| _ = html.link("/t/x", "x").literal("<br>"));
        });
        assert_eq!(html.into_markup(), "<ul class=\"a\"><li><a href=\"/t/x\">x</a><br></li></ul>");
    }
}
