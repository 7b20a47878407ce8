//! The frame of a document: head, search, the way to the other screens.

use crate::failure::Refusal;
use crate::html::Html;
use crate::page::Page;
use annals::store::log::LogPosition;

/// A screen as HTML.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) title: String,
    pub(crate) main: Html,
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
    html.within("header", &[("class", "top")], |html| {
        html.within("a", &[("href", "/"), ("class", "brand")], |html| _ = html.text("annals"));
        html.classed("span", "store", page.name());
        html.within("form", &[("action", "/search"), ("role", "search")], |html| {
            html.open(
                "input",
                &[
                    ("type", "search"),
                    ("name", "q"),
                    ("id", "search"),
                    ("placeholder", "/ search"),
                    ("aria-label", "Search all messages"),
                    ("autocomplete", "off"),
                    ("value", &view.searched),
                ],
            );
        });
        html.within("nav", &[("aria-label", "Screens")], |html| {
            html.link("/", "threads");
            html.link("/runs?status=interrupted", &format!("{} waiting", view.counts[0]));
            html.link("/runs?status=failed", &format!("{} failed", view.counts[1]));
            html.link("/runs", "runs").link("/stats", "stats").link("/health", "health");
        });
        html.classed("span", "mode", if page.allows_write() { "may write" } else { "read-only" });
    });
    html.within("p", &[("id", "news"), ("role", "status"), ("hidden", "")], |_| {});
    let mut attributes = vec![("id", "main"), ("tabindex", "-1")];
    let position = view.position.to_string();
    if let Some(thread) = &view.live {
        attributes.extend([("data-live", thread.as_str()), ("data-position", &position)]);
    }
    html.open("main", &attributes).add(&view.main).close("main");
    html.within("footer", &[], |html| {
        if let Some(twin) = &view.twin {
            html.link(twin, "JSON of this screen");
        }
        html.within("details", &[("id", "keys")], |html| {
            html.element("summary", &[], "? keys");
            html.text(
                "/ search · j k next and previous row · Enter open · h l branch · d difference with the parent · \
                 b blame: the step that wrote it · s state · t talk · f fork · g threads",
            );
        });
    });
    html.literal("</body></html>\n");
    html
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
    html.literal("</head><body><a class=\"skip\" href=\"#main\">Skip to the content</a>");
}
