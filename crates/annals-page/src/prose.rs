//! Markdown as HTML, by the events of a parser.
//!
//! Invariants: markup of a text is text in the document, since the parser's events of HTML are written as values; a
//! link leads to `http`, `https` or `mailto`; nothing is loaded, so a picture is a link with its words; what one text
//! adds has a limit, since Markdown can name one address many times. *Absent:* footnotes, and the outline of a
//! document: headings are of two levels.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::code;
use crate::html::Html;
use crate::limits::{PROSE_BYTES_MAX, PROSE_DEPTH_MAX};

/// Adds a text of Markdown. `breaks` keeps its line breaks, as a person typed them. Returns false if the text is longer
/// than its limit, and was cut.
pub(crate) fn add_to(html: &mut Html, text: &str, breaks: bool) -> bool {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = ProseWriter { breaks, begin: html.len(), ..ProseWriter::default() };
    for event in Parser::new_ext(text, options) {
        if html.len() - writer.begin > PROSE_BYTES_MAX {
            writer.close_all(html);
            return false;
        }
        writer.event(html, event);
    }
    writer.close_all(html);
    true
}

/// Where a text stands while its events are written.
#[derive(Default)]
struct ProseWriter {
    breaks: bool,
    /// The length of the document before the text.
    begin: usize,
    /// The open elements. An empty name stands for one that is not written.
    open: Vec<&'static str>,
    /// The language and the text of code, which is written at its end.
    code: Option<(String, String)>,
    columns: Vec<Alignment>,
    cell: usize,
    in_head: bool,
}

impl ProseWriter {
    fn event(&mut self, html: &mut Html, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(html, tag),
            Event::End(tag) => self.end(html, tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => _ = html.value(&text),
            },
            Event::Code(text) => _ = html.element("code", &[("dir", "auto")], &text),
            Event::SoftBreak if self.breaks => _ = html.literal("<br>"),
            Event::SoftBreak => _ = html.literal("\n"),
            Event::HardBreak => _ = html.literal("<br>"),
            Event::Rule => _ = html.literal("<hr>"),
            Event::TaskListMarker(is_done) => _ = html.literal(if is_done { "☑ " } else { "☐ " }),
            // These need options that are off.
            Event::FootnoteReference(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                _ = html.value(&text)
            }
        }
    }

    fn start(&mut self, html: &mut Html, tag: Tag<'_>) {
        const AUTO: &[(&str, &str)] = &[("dir", "auto")];
        let mut open = |name: &'static str, attributes: &[(&'static str, &str)]| {
            let is_written = !name.is_empty() && self.open.len() < PROSE_DEPTH_MAX;
            self.open.push(if is_written { name } else { "" });
            if is_written {
                html.open(name, attributes);
            }
        };
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => open("p", AUTO),
            Tag::Heading { level, .. } => open(if level <= HeadingLevel::H3 { "h3" } else { "h4" }, AUTO),
            Tag::BlockQuote(_) => open("blockquote", &[]),
            Tag::CodeBlock(kind) => {
                let language =
                    if let CodeBlockKind::Fenced(language) = kind { language.to_string() } else { String::new() };
                self.code = Some((language, String::new()));
                open("", &[]);
            }
            Tag::List(Some(first)) if first != 1 => open("ol", &[("start", &first.to_string())]),
            Tag::List(Some(_)) => open("ol", &[]),
            Tag::List(None) => open("ul", &[]),
            Tag::Item => open("li", AUTO),
            Tag::Table(columns) => {
                self.columns = columns;
                open("table", &[]);
            }
            Tag::TableHead => {
                (self.in_head, self.cell) = (true, 0);
                open("tr", &[]);
            }
            Tag::TableRow => {
                (self.in_head, self.cell) = (false, 0);
                open("tr", &[]);
            }
            Tag::TableCell => {
                let is_right = self.columns.get(self.cell) == Some(&Alignment::Right);
                self.cell += 1;
                let attributes: &[_] = &[("dir", "auto"), ("class", "num")];
                open(if self.in_head { "th" } else { "td" }, if is_right { attributes } else { AUTO });
            }
            Tag::Emphasis => open("em", &[]),
            Tag::Strong => open("strong", &[]),
            Tag::Strikethrough => open("s", &[]),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => match is_outside(&dest_url) {
                true => open("a", &[("href", &dest_url), ("rel", "noreferrer noopener"), ("dir", "auto")]),
                false => open("", &[]),
            },
            _ => open("", &[]),
        }
    }

    fn end(&mut self, html: &mut Html, tag: TagEnd) {
        if let (TagEnd::CodeBlock, Some((language, text))) = (tag, self.code.take()) {
            code::add_to(html, &language, &text);
        }
        self.close(html);
    }

    fn close(&mut self, html: &mut Html) {
        if let Some(name) = self.open.pop().filter(|name| !name.is_empty()) {
            html.close(name);
        }
    }

    fn close_all(&mut self, html: &mut Html) {
        if let Some((language, text)) = self.code.take() {
            code::add_to(html, &language, &text);
        }
        while !self.open.is_empty() {
            self.close(html);
        }
    }
}

/// Returns whether an address may be followed from a text that somebody else wrote.
fn is_outside(address: &str) -> bool {
    let scheme = address.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https" | "mailto"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut html = Html::new();
        assert!(add_to(&mut html, text, false), "{text} is whole");
        html.into_markup()
    }

    #[test]
    fn markdown_is_markup_of_this_program() {
        assert_eq!(
            shown("# A *b*\n\none\ntwo `<c>`\n\n- x\n- y"),
            "<h3 dir=\"auto\">A <em>b</em></h3><p dir=\"auto\">one\ntwo <code dir=\"auto\">&lt;c&gt;</code></p>\
             <ul><li dir=\"auto\">x</li><li dir=\"auto\">y</li></ul>"
        );
        assert_eq!(
            shown("| a | b |\n| --- | --: |\n| 1 | 2 |"),
            "<table><tr><th dir=\"auto\">a</th><th dir=\"auto\" class=\"num\">b</th></tr>\
             <tr><td dir=\"auto\">1</td><td dir=\"auto\" class=\"num\">2</td></tr></table>"
        );
        assert!(shown("```rust\nfn <a>\n```").contains("<span class=\"k\">fn</span> &lt;a&gt;"));
        assert!(shown("```rust\nfn a").ends_with("</code></pre></div>"), "code that does not end is closed");
    }

    #[test]
    fn no_text_becomes_a_tag_or_a_dangerous_link() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "[a](javascript:alert(1))",
            "[a](JaVaScRiPt:alert(1))",
            "![a](data:text/html,x)",
            "<javascript:alert(1)>",
            "[a]: javascript:alert(1)\n\n[a]",
            "[a](/t/trip)",
            "<div\nonclick=alert(1)>\n\n</div>",
        ] {
            let markup = shown(text);
            for wrong in ["<script", "<img", "<div", "href", " onclick=\"", " src=\""] {
                assert!(!markup.contains(wrong), "{text}: {markup}");
            }
        }
        let link = shown("[a](https://example.org/?q=\"><b>)");
        assert!(
            link.contains("href=\"https://example.org/?q=&quot;&gt;&lt;b&gt;\" rel=\"noreferrer noopener\""),
            "{link}"
        );
    }

    #[test]
    fn what_a_text_adds_has_a_limit() {
        let address = format!("[a]: http://{}\n\n", "x".repeat(9_000));
        let table = format!("|{}\n|{}\n{}", "a|".repeat(900), "-|".repeat(900), "|\n".repeat(3_000));
        for text in
            [address + &"[a] ".repeat(1_000), table, "> ".repeat(6_000), "*a ".repeat(6_000), "[".repeat(12_000)]
        {
            let mut html = Html::new();
            _ = add_to(&mut html, &text, true);
            assert!(html.len() < PROSE_BYTES_MAX + 64_000, "{} bytes", html.len());
            let markup = html.into_markup();
            assert_eq!(markup.matches("<blockquote").count(), markup.matches("</blockquote").count());
            assert!(markup.matches("<blockquote").count() <= PROSE_DEPTH_MAX);
        }
    }
}
