//! The writer of HTML. Invariants: data enters a document only through [`Html::text`], [`Html::value`] and attribute
//! values, which escape it; markup is written by literals of this program. Text from right to left stands in an element
//! of its own direction, so that it does not reorder the text around it.

use std::fmt::Write as _;

use annals::base::Timestamp;
use annals_view::words::age;

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

    /// Adds a text that may hold data, escaped. Its parts from right to left are isolated.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        let mut left = text;
        while let Some((from, to)) = turned_part(left) {
            escape_into(&left[..from], &mut self.markup);
            self.literal("<bdi>").value(&left[from..to]).literal("</bdi>");
            left = &left[to..];
        }
        self.value(left)
    }

    /// Adds a value as the only content of an element that isolates it, such as one with the attribute `dir="auto"`:
    /// its direction is that of its first letter.
    pub(crate) fn value(&mut self, value: &str) -> &mut Self {
        escape_into(value, &mut self.markup);
        self
    }

    /// Adds a value beside other text.
    pub(crate) fn isolated(&mut self, value: &str) -> &mut Self {
        if !value.contains(is_right_to_left) {
            return self.value(value);
        }
        self.literal("<bdi>").value(value).literal("</bdi>")
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
        for (name, value) in attributes.iter().filter(|(name, value)| *name != "class" || !value.is_empty()) {
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
        // These elements hold text alone, or are of SVG, which has no `bdi`.
        let is_plain = matches!(tag, "title" | "option" | "textarea" | "text");
        self.open(tag, attributes);
        if is_plain || attributes.contains(&("dir", "auto")) { self.value(text) } else { self.text(text) }.close(tag)
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
        let isolated: Attributes<'_> = &[("href", href), ("dir", "auto")];
        self.element("a", if text.contains(is_right_to_left) { isolated } else { &isolated[..1] }, text)
    }

    /// Adds a timestamp: its age for a column, and the whole one as its title. Without a present, in a document that is
    /// read later, it is the minute.
    pub(crate) fn time(&mut self, class: &str, now: impl Into<Option<Timestamp>>, then: Timestamp) -> &mut Self {
        let whole = then.to_string();
        let minute = || whole.chars().take(16).map(|c| if c == 'T' { ' ' } else { c }).collect::<String>();
        let shown = now.into().map_or_else(minute, |now| age(now, then));
        self.element("time", &[("class", class), ("datetime", &whole), ("title", &whole)], &shown)
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

    /// Returns the bytes of the markup.
    pub(crate) fn len(&self) -> usize {
        self.markup.len()
    }

    /// Returns the markup.
    pub(crate) fn into_markup(self) -> String {
        debug_assert!(!self.markup.contains('\0'), "a document has no NUL");
        self.markup
    }
}

/// Returns whether a character is of a script that runs from right to left, or is a mark of that direction.
fn is_right_to_left(c: char) -> bool {
    matches!(c, '\u{590}'..='\u{8ff}' | '\u{200f}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefe}'
        | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}')
}

/// Returns the bytes of the first part of a text that runs from right to left: from its first such character to the
/// last one before a letter of the other direction, or before the end of the line.
fn turned_part(text: &str) -> Option<(usize, usize)> {
    let from = text.find(is_right_to_left)?;
    let is_other = |c: char| c == '\n' || (c.is_alphabetic() && !is_right_to_left(c));
    let until = text[from..].find(is_other).map_or(text.len(), |len| from + len);
    let (last, c) = text[from..until].char_indices().rfind(|(_, c)| is_right_to_left(*c))?;
    Some((from, from + last + c.len_utf8()))
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
    fn an_age_is_shown_as_it_is_written() {
        let (then, week) = (Timestamp::from_micros(3_600_000_000), Timestamp::from_micros(3 * 86_400_000_000));
        let shown = |now: Option<Timestamp>| {
            let mut html = Html::new();
            html.time("age", now, then);
            html.into_markup()
        };
        assert!(shown(Some(week)).contains(">Thu 01:00<"), "{}", shown(Some(week)));
        assert!(shown(None).contains(">1970-01-01 01:00<"), "{}", shown(None));
    }

    #[test]
    fn text_from_right_to_left_is_isolated() {
        let shown = |add: fn(&mut Html)| {
            let mut html = Html::new();
            add(&mut html);
            html.into_markup()
        };
        let hello = "\u{5e9}\u{5dc}\u{5d5}\u{5dd}";
        assert_eq!(
            shown(|html| _ = html.text("of \u{5e9}\u{5dc}, \u{5d5}\u{5dd}: 3 steps, \u{645}")),
            "of <bdi>\u{5e9}\u{5dc}, \u{5d5}\u{5dd}</bdi>: 3 steps, <bdi>\u{645}</bdi>"
        );
        assert_eq!(shown(|html| _ = html.text("plain: 3 steps")), "plain: 3 steps");
        assert_eq!(
            shown(|html| _ = html.element("p", &[("dir", "auto")], "\u{5e9}\u{5dc}\u{5d5}\u{5dd} a")),
            format!("<p dir=\"auto\">{hello} a</p>"),
            "the element isolates its value"
        );
        assert_eq!(
            shown(|html| _ = html.link("/", "\u{5e9}\u{5dc}\u{5d5}\u{5dd}").link("/", "a")),
            format!("<a href=\"/\" dir=\"auto\">{hello}</a><a href=\"/\">a</a>")
        );
        assert_eq!(
            shown(|html| _ = html.element("text", &[], "\u{5e9}\u{5dc}\u{5d5}\u{5dd}")),
            format!("<text>{hello}</text>")
        );
        assert_eq!(shown(|html| _ = html.isolated("\u{5d5} a <").isolated("b")), "<bdi>\u{5d5} a &lt;</bdi>b");
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
