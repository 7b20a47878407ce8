//! The frame of a document: head, search, the way to the other screens.

use crate::failure::Refusal;
use crate::html::Html;
use crate::page::Page;
use annals::store::log::LogPosition;

/// The name of the program, with its mark: a branch that leaves another one.
const BRAND: &str = "<a class=\"brand\" href=\"/\">\
    <svg width=\"16\" height=\"18\" viewBox=\"0 0 16 18\" aria-hidden=\"true\"><path d=\"M4 1v16M4 13h4q4 0 4-4V6\"/>\
    <circle cx=\"4\" cy=\"13\" r=\"2.4\"/><circle cx=\"12\" cy=\"4.5\" r=\"2.4\"/></svg>annals</a>";

/// A screen as HTML.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) title: String,
    pub(crate) main: Html,
    /// The screen of the store that the document belongs to: `threads`, `runs`, `stats` or `health`.
    pub(crate) section: &'static str,
    /// The text in the field of the search.
    pub(crate) searched: String,
    /// The thread whose new checkpoints concern the screen; an empty text stands for all threads, `None` for none.
    pub(crate) live: Option<String>,
    /// The position in the log before the screen was read: later checkpoints are new to it.
    pub(crate) position: LogPosition,
    /// The address of the JSON of the screen.
    pub(crate) twin: Option<String>,
    /// The numbers of threads that wait and that failed.
    pub(crate) counts: [String; 2],
}

impl View {
    pub(crate) fn new(title: impl Into<String>, main: Html) -> Self {
        Self { title: title.into(), main, ..Self::default() }
    }

    /// Follows a thread, or with an empty text all threads.
    pub(crate) fn live(self, thread: &str) -> Self {
        Self { live: Some(thread.to_owned()), ..self }
    }
}

/// Returns the document of a screen.
pub(crate) fn document(page: &Page, view: &View) -> Html {
    let mut html = Html::new();
    begin(&mut html, &view.title);
    html.open("header", &[("class", "top")]).open("div", &[]);
    html.literal(BRAND).classed("span", "store mono dim cut", page.name());
    search(&mut html, view);
    navigation(&mut html, view);
    html.classed("span", "mode dim small", if page.allows_write() { "may write" } else { "read-only" });
    html.close("div").close("header");
    html.within("p", &[("id", "news"), ("class", "news"), ("role", "status"), ("hidden", "")], |_| {});
    let mut attributes = vec![("id", "main"), ("tabindex", "-1")];
    let position = view.position.to_string();
    if let Some(thread) = &view.live {
        attributes.extend([("data-live", thread.as_str()), ("data-position", &position)]);
    }
    html.open("main", &attributes).add(&view.main).close("main");
    footer(&mut html, view);
    html.literal("</body></html>\n");
    html
}

fn search(html: &mut Html, view: &View) {
    html.open("form", &[("action", "/search"), ("class", "search"), ("role", "search")]);
    html.open(
        "input",
        &[
            ("type", "search"),
            ("name", "q"),
            ("id", "search"),
            ("placeholder", "Search words, or status:waiting project:home"),
            ("aria-label", "Search titles, messages and values"),
            ("autocomplete", "off"),
            ("value", &view.searched),
        ],
    );
    html.literal("<kbd aria-hidden=\"true\">/</kbd>").close("form");
}

/// Adds the links to the screens of the store, with the numbers of threads that wait and that failed.
fn navigation(html: &mut Html, view: &View) {
    html.open("nav", &[("aria-label", "Store")]);
    for (section, address, name) in [
        ("threads", "/", "Threads"),
        ("runs", "/runs", "Runs"),
        ("stats", "/stats", "Stats"),
        ("health", "/health", "Health"),
    ] {
        html.open("span", &[]);
        let mut attributes = vec![("href", address)];
        attributes.extend((view.section == section).then_some(("aria-current", "page")));
        html.element("a", &attributes, name);
        if section == "runs" {
            let counts = [("count", "interrupted", "waiting"), ("count bad", "failed", "failed")];
            for ((class, status, word), count) in
                counts.into_iter().zip(&view.counts).filter(|(_, count)| *count != "0")
            {
                let (href, label) = (format!("/runs?status={status}"), format!("{count} {word}"));
                html.element(
                    "a",
                    &[("class", class), ("href", &href), ("title", &label), ("aria-label", &label)],
                    count,
                );
            }
        }
        html.close("span");
    }
    html.close("nav");
}

fn footer(html: &mut Html, view: &View) {
    html.open("footer", &[("class", "foot")]);
    if let Some(twin) = &view.twin {
        html.link(twin, "JSON of this screen");
    }
    for (keys, does) in [
        (&["j", "k"][..], "move"),
        (&["Enter"], "open"),
        (&["h", "l"], "branch"),
        (&["d"], "compare"),
        (&["/"], "search"),
    ] {
        html.open("span", &[("class", "keys")]);
        keys.iter().for_each(|key| _ = html.element("kbd", &[], key));
        html.literal(" ").text(does).close("span");
    }
    html.within("details", &[("id", "keys")], |html| {
        html.literal("<summary><kbd>?</kbd> all keys</summary>");
        html.text(
            "/ search · j k next and previous row · Enter open · h l branch · d difference with the parent · \
             b blame: the step that wrote it · s state · t talk · f fork · g threads",
        );
    });
    html.close("footer");
}

/// Returns the document of a failure.
pub(crate) fn refusal(refusal: &Refusal) -> Html {
    let mut html = Html::new();
    begin(&mut html, refusal.code);
    html.within("main", &[("id", "main")], |html| {
        html.element("h1", &[], &format!("{} {}", refusal.status, refusal.code));
        html.classed("p", "error", &refusal.message);
        if let Some(hint) = refusal.hint {
            html.element("p", &[], hint);
        }
        html.within("p", &[], |html| _ = html.link("/", "threads"));
    });
    html.literal("</body></html>\n");
    html
}

fn begin(html: &mut Html, title: &str) {
    html.literal("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    html.literal("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    html.literal("<meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">");
    html.literal("<link rel=\"stylesheet\" href=\"/page.css\"><script src=\"/page.js\" defer></script>");
    html.element("title", &[], &format!("{title} · annals"));
    html.literal("</head><body><a class=\"hide\" href=\"#main\">Skip to the content</a>");
}
