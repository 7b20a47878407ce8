//! The results of a search, grouped by thread. The address holds the search.

use annals::store::SearchQuery;
use annals::store::search::{SearchCursor, SearchHit, Snippet};
use serde_json::{Value as Json, json};

use super::{Screen, Shown};
use crate::address::{self, encode, thread_text};
use crate::failure::Refusal;
use crate::filter::ThreadFilter;
use crate::html::Html;
use crate::layout::View;
use crate::limits::HITS_MAX;
use crate::words::{ago, count, shortened};

pub(super) fn show(screen: &Screen<'_>) -> Result<Shown, Refusal> {
    let text = screen.query.get("q").unwrap_or_default().trim();
    let filter = ThreadFilter::parse(text);
    if filter.has_names() && !screen.json {
        return Ok(Shown::To(filter.address()));
    }
    let mut html = Html::new();
    html.element("h1", &[], "Search");
    facets(screen, &mut html);
    if text.is_empty() {
        if screen.json {
            return Err(Refusal::usage("q is empty: name a word that the text holds"));
        }
        html.classed("p", "dim", "Name words that the text holds, in any case and within words.");
        return Ok(View::new("search", html).into());
    }
    let page = screen.store.search(query(screen, text)?)?;
    if screen.json {
        let hits: Vec<Json> = page.hits.iter().map(document).collect();
        let next = page.next.as_ref().map(ToString::to_string);
        return Ok(Shown::Json(json!({ "schema": 1, "next": next, "hits": hits })));
    }
    if screen.store.search_index()?.is_none() {
        html.classed("p", "dim", "The store is not indexed: a search reads every text that the filters leave.");
    }
    let note = if page.next.is_some() { " on this page" } else { "" };
    html.classed("p", "dim", &format!("{}{note}", count(page.hits.len() as u64, "hit")));
    let mut thread = None;
    for hit in &page.hits {
        let id = hit.point.thread.as_str();
        if thread != Some(id) {
            html.within("h2", &[], |html| _ = html.link(&address::thread(id), &shortened(id, 80)));
            thread = Some(id);
        }
        row(screen, &mut html, hit);
    }
    if let Some(next) = &page.next {
        let kept = screen.query.pairs().filter(|pair| !pair.starts_with("after="));
        let pairs: Vec<String> = kept.chain([format!("after={}", encode(&next.to_string()))]).collect();
        html.within("p", &[("class", "next")], |html| {
            _ = html.link(&format!("/search?{}", pairs.join("&")), "older hits")
        });
    }
    Ok(View { searched: text.to_owned(), ..View::new(format!("search {}", shortened(text, 40)), html) }.into())
}

fn query(screen: &Screen<'_>, text: &str) -> Result<SearchQuery, Refusal> {
    let mut query = SearchQuery::new(text).limit(HITS_MAX);
    for name in ["thread", "role", "node", "channel"] {
        query = match (name, screen.query.get(name)) {
            (_, None) => query,
            ("thread", Some(thread)) => query.thread(thread),
            ("role", Some(role)) => query.role(role),
            ("node", Some(node)) => query.node(node),
            (_, Some(channel)) => query.channel(channel),
        };
    }
    if screen.query.get("on_head").is_some() {
        query = query.on_head();
    }
    match screen.query.get("after").map(str::parse::<SearchCursor>) {
        Some(Ok(cursor)) => Ok(query.after(cursor)),
        Some(Err(_)) => Err(Refusal::usage("after is not the cursor of a search")),
        None => Ok(query),
    }
}

fn facets(screen: &Screen<'_>, html: &mut Html) {
    html.within("form", &[("action", "/search"), ("class", "facets")], |html| {
        for (name, label) in
            [("q", "text"), ("thread", "thread"), ("role", "role"), ("node", "node"), ("channel", "channel")]
        {
            html.within("label", &[], |html| {
                html.text(label).literal(" ");
                let value = screen.query.get(name).unwrap_or_default();
                html.open(
                    "input",
                    &[("name", name), ("value", value), ("size", if name == "q" { "30" } else { "10" })],
                );
            });
        }
        html.element("button", &[], "search");
    });
}

fn row(screen: &Screen<'_>, html: &mut Html, hit: &SearchHit) {
    let point = format!("{}@{}", thread_text(hit.point.thread.as_str()), hit.point.checkpoint);
    html.open("div", &[("class", "hit"), ("data-row", "")]);
    // The grammar of points names checkpoints of the root namespace alone.
    if hit.partial {
        html.text(&shortened(&hit.channel, 60)).literal(" ").link(&format!("/t/{}/talk", encode(&point)), "talk");
    } else if hit.point.namespace.is_root() {
        let position = hit.position.to_string();
        let address = address::state(&format!("/t/{}", encode(&point)), [&*hit.channel, &position]);
        html.link(&address, &shortened(&format!("{} {}", hit.channel, hit.position), 60));
        html.literal(" ").link(&format!("/t/{}/talk", encode(&point)), "talk");
    } else {
        html.text(&shortened(&format!("{} of {}", hit.channel, hit.point.namespace.as_str()), 80));
    }
    for word in [hit.role.as_deref(), hit.name.as_deref(), hit.node.as_deref()].into_iter().flatten() {
        html.literal(" ").classed("span", "tag", &shortened(word, 40));
    }
    let state = match (&hit.carried, hit.partial, hit.on_head) {
        (Some(_), ..) => "in the present state, carried by a compaction",
        (None, false, true) if hit.folded => "in the present state, folded by a compaction",
        (None, true, _) => "half an answer",
        (None, false, true) => "in the present state",
        (None, false, false) => "of the past",
    };
    html.literal(" ").classed("span", "dim", &format!("{} · {state}", ago(screen.store.now(), hit.created_at)));
    html.within("p", &[("dir", "auto"), ("class", "snippet")], |html| snippet(html, &hit.snippet));
    html.close("div");
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

/// Returns the document of a hit, as `annals search --json` has it.
fn document(hit: &SearchHit) -> Json {
    json!({
        "thread": hit.point.thread.as_str(),
        "namespace": hit.point.namespace.as_str(),
        "checkpoint": hit.point.checkpoint.to_string(),
        "created_at": hit.created_at.to_string(),
        "channel": &*hit.channel,
        "position": hit.position,
        "id": hit.id,
        "role": hit.role,
        "name": hit.name,
        "node": hit.node.as_deref(),
        "on_head": hit.on_head,
        "carried": hit.carried.as_ref().map(|carried| carried.checkpoint.to_string()),
        "folded": hit.folded,
        "partial": hit.partial,
        "snippet": hit.snippet.text,
        "matches": hit.snippet.matches.iter().map(|found| [found.start, found.end]).collect::<Vec<_>>(),
    })
}
