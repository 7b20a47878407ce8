//! The hits of a search, grouped by thread: the rows of a listing of threads, each with the words that were found. The
//! address holds the search.

use annals::store::search::{SearchCursor, SearchHit, Snippet};
use annals::store::{Store, StoreError};
use annals_view::hit_document;
use annals_view::words::{count, shortened};
use serde_json::{Value as Json, json};

use super::facets::Facets;
use super::threads::ThreadEntry;
use super::{Screen, Shown};
use crate::address::{self, encode, thread_text};
use crate::failure::Refusal;
use crate::filter::{PRESENT, ThreadFilter};
use crate::html::Html;
use crate::layout::View;
use crate::limits::HITS_MAX;

/// The hits of a thread.
struct FoundThread<'h> {
    entry: ThreadEntry,
    hits: Vec<&'h SearchHit>,
}

pub(super) fn show(screen: &Screen<'_>) -> Result<Shown, Refusal> {
    let filter = ThreadFilter::read(&screen.query);
    if filter.of_threads().is_some() && filter.of_messages().is_none() && !screen.json {
        return Ok(Shown::To(filter.address()));
    }
    if filter.title().is_empty() {
        if screen.json {
            return Err(Refusal::usage("q is empty: name a word that the text holds"));
        }
        return Ok(empty(&filter));
    }
    let mut query = filter.search(screen.store.now())?.limit(HITS_MAX);
    if let Some(after) = screen.query.get("after") {
        let wrong = |_| Refusal::usage("after is not the cursor of a search");
        query = query.after(after.parse::<SearchCursor>().map_err(wrong)?);
    }
    let page = screen.store.search(query)?;
    if screen.json {
        let hits: Vec<Json> = page.hits.iter().map(hit_document).collect();
        let next = page.next.as_ref().map(ToString::to_string);
        return Ok(Shown::Json(json!({ "schema": 1, "next": next, "hits": hits })));
    }
    let threads = found(screen.store, &page.hits)?;
    let mut html = Html::new();
    html.classed("h1", "hide", "Search").open("div", &[("class", "list")]);
    let is_part = page.next.is_some() || screen.query.get("after").is_some();
    facets(&mut html, &filter, &page.hits, is_part);
    html.open("div", &[]);
    list(screen, &mut html, &threads, page.hits.len(), is_part);
    if page.hits.is_empty() {
        html.open("div", &[("class", "empty")]).literal("<b>No text holds these words.</b> ");
        html.text(&shortened(&filter.text(), 200)).literal(" ");
        html.element("a", &[("class", "link"), ("href", "/")], "remove them").close("div");
    }
    if screen.store.search_index()?.is_none() {
        html.open("p", &[("class", "dim small next")]);
        html.text("The store is not indexed: a search reads every text that the filters leave.").close("p");
    }
    if let Some(next) = &page.next {
        let kept = screen.query.pairs().filter(|pair| !pair.starts_with("after="));
        let pairs: Vec<String> = kept.chain([format!("after={}", encode(&next.to_string()))]).collect();
        html.within("p", &[("class", "next")], |html| {
            _ = html.link(&format!("/search?{}", pairs.join("&")), "older hits")
        });
    }
    html.close("div").close("div");
    let title = format!("search {}", shortened(filter.title(), 40));
    Ok(View { searched: filter.text(), ..View::new(title, html) }.into())
}

/// Returns the screen without words: what it is for, and its filters.
fn empty(filter: &ThreadFilter) -> Shown {
    let mut html = Html::new();
    html.element("h1", &[], "Search").open("div", &[("class", "empty")]);
    html.literal("<b>Name words that the text holds, in any case and within words.</b> ");
    html.text("Filters are words as well: ");
    for word in ["role:ai", "node:agent", "channel:messages", "thread:trip", "since:1d", "is:present"] {
        html.element("code", &[], word).literal(" ");
    }
    html.close("div");
    View { searched: filter.text(), ..View::new("search", html) }.into()
}

/// Returns the threads of hits, in the order of their newest ones.
fn found<'h>(store: &Store, hits: &'h [SearchHit]) -> Result<Vec<FoundThread<'h>>, Refusal> {
    let mut threads: Vec<FoundThread<'h>> = Vec::new();
    for hit in hits {
        let id = &hit.point.thread;
        if let Some(thread) = threads.iter_mut().find(|thread| thread.entry.info.id() == id) {
            thread.hits.push(hit);
            continue;
        }
        let info = match store.thread(id.as_str())?.info() {
            // The thread was deleted after the search.
            Err(StoreError::ThreadNotFound { .. }) => continue,
            info => info?,
        };
        threads.push(FoundThread { entry: ThreadEntry::read(store, info, false)?, hits: vec![hit] });
    }
    debug_assert!(threads.iter().all(|thread| !thread.hits.is_empty()), "a thread is listed for its hits");
    Ok(threads)
}

fn facets(html: &mut Html, filter: &ThreadFilter, hits: &[SearchHit], is_part: bool) {
    let facets = Facets { filter, address: ThreadFilter::search_address };
    Facets::begin(html);
    html.open("div", &[("class", "facet")]).element("h2", &[], "State");
    let present = hits.iter().filter(|hit| hit.on_head).count();
    facets.link(html, ("is", PRESENT), "Present", present, None);
    html.close("div");
    facets.values(html, "role", "Role", hits.iter().filter_map(|hit| hit.role.as_deref()));
    facets.values(html, "node", "Node", hits.iter().filter_map(|hit| hit.node.as_deref()));
    facets.values(html, "channel", "Channel", hits.iter().map(|hit| &*hit.channel));
    facets.values(html, "thread", "Thread", hits.iter().map(|hit| hit.point.thread.as_str()));
    Facets::end(html, is_part);
}

fn list(screen: &Screen<'_>, html: &mut Html, threads: &[FoundThread<'_>], hits: usize, is_part: bool) {
    html.open("section", &[("class", "day")]).open("div", &[("class", "colhead found")]);
    let note = if is_part { " on this page" } else { "" };
    html.open("h2", &[]).text(&format!("{}{note}", count(hits as u64, "hit")));
    html.classed("span", "dim", &format!("in {}", count(threads.len() as u64, "thread"))).close("h2");
    html.classed("span", "num age", "written").close("div").open("ol", &[]);
    for thread in threads {
        let address = address::thread(thread.entry.info.id().as_str());
        thread.entry.begin(html, "thread found", &[], &address);
        html.open("ol", &[]);
        thread.hits.iter().for_each(|hit| row(screen, html, hit));
        html.close("ol").close("div").close("li");
    }
    html.close("ol").close("section");
}

fn row(screen: &Screen<'_>, html: &mut Html, hit: &SearchHit) {
    let point =
        format!("/t/{}", encode(&format!("{}@{}", thread_text(hit.point.thread.as_str()), hit.point.checkpoint)));
    html.open("li", &[("class", "hit"), ("data-row", "")]).open("div", &[]);
    // The grammar of points names checkpoints of the root namespace alone.
    let is_root = hit.point.namespace.is_root();
    let place = address::state(&point, [&*hit.channel, &hit.position.to_string()]);
    let talk = format!("{point}/talk#m{}", hit.position);
    let address = match (is_root, hit.partial, hit.role.is_some()) {
        (false, ..) => None,
        (true, true, _) | (true, _, true) => Some(&talk),
        (true, false, false) => Some(&place),
    };
    match address {
        Some(address) => {
            html.open("a", &[("class", "snippet"), ("href", address), ("dir", "auto")]);
            snippet(html, &hit.snippet);
            html.close("a");
        }
        None => _ = html.within("span", &[("class", "snippet"), ("dir", "auto")], |html| snippet(html, &hit.snippet)),
    }
    html.open("p", &[("class", "facts")]);
    for word in [hit.role.as_deref(), hit.name.as_deref(), hit.node.as_deref()].into_iter().flatten() {
        html.within("span", &[], |html| _ = html.isolated(&shortened(word, 40)));
    }
    let position = shortened(&format!("{} {}", hit.channel, hit.position), 60);
    html.open("span", &[]);
    if is_root && !hit.partial {
        html.link(&place, &position);
    } else {
        html.isolated(&position);
    }
    html.close("span");
    if !is_root {
        html.within("span", &[], |html| _ = html.text("of ").isolated(&shortened(hit.point.namespace.as_str(), 60)));
    }
    let state = match (&hit.carried, hit.partial, hit.on_head) {
        (Some(_), ..) => "carried by a compaction",
        (None, false, true) if hit.folded => "folded by a compaction",
        (None, true, _) => "half an answer",
        (None, false, true) => "",
        (None, false, false) => "of the past",
    };
    if !state.is_empty() {
        html.element("span", &[], state);
    }
    html.close("p").close("div").time("num age", screen.store.now(), hit.created_at).close("li");
}

fn snippet(html: &mut Html, snippet: &Snippet) {
    html.value(if snippet.more_before { "…" } else { "" });
    let mut at = 0;
    for found in snippet.matches.iter().filter(|found| found.end <= snippet.text.len()) {
        if found.start < at {
            continue;
        }
        html.value(&snippet.text[at..found.start]);
        html.open("mark", &[]).value(&snippet.text[found.clone()]).close("mark");
        at = found.end;
    }
    html.value(&snippet.text[at..]).value(if snippet.more_after { "…" } else { "" });
}
