//! Compares documents of the format `turns-json`: identifiers that are expected as null stand for any, members without
//! content are equal to absent ones, timestamps are compared by instant.

use std::collections::HashSet;

use annals::base::Timestamp;
use serde_json::{Map, Value as Json};

const MESSAGE: [&str; 12] = [
    "type",
    "text",
    "tool_calls",
    "invalid_tool_calls",
    "tool_call_id",
    "status",
    "summary",
    "reasoning",
    "images",
    "model",
    "usage",
    "error",
];

type Compared = Result<(), String>;

fn is_empty(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Bool(value) => !value,
        Json::Number(number) => number.as_f64() == Some(0.0),
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::Object(members) => members.is_empty(),
    }
}

fn same(want: &Json, got: &Json, place: &str, any_ids: bool) -> Compared {
    if any_ids && want.is_null() {
        return Ok(());
    }
    match (want, got) {
        (Json::Object(a), Json::Object(b)) => {
            let empty = Map::new();
            let names: HashSet<&String> = a.keys().chain(b.keys()).chain(empty.keys()).collect();
            for name in names {
                let (x, y) = (&want[name.as_str()], &got[name.as_str()]);
                if !(is_empty(x) && is_empty(y)) || (any_ids && a.contains_key(name)) {
                    same(x, y, &format!("{place}.{name}"), any_ids && matches!(name.as_str(), "id" | "name"))?;
                }
            }
            Ok(())
        }
        (Json::Array(a), Json::Array(b)) => {
            if a.len() != b.len() {
                return Err(format!("{place}: {} expected, got {}", a.len(), b.len()));
            }
            a.iter().zip(b).enumerate().try_for_each(|(at, (x, y))| same(x, y, &format!("{place}[{at}]"), any_ids))
        }
        _ if want == got => Ok(()),
        _ => Err(format!("{place}: expected {want}, got {got}")),
    }
}

fn message(want: &Json, got: &Json, place: &str) -> Compared {
    if want["id"].is_null() {
        if got["id"].as_str().is_none_or(str::is_empty) {
            return Err(format!("{place}.id: any identifier expected, got {}", got["id"]));
        }
    } else if want["id"] != got["id"] {
        return Err(format!("{place}.id: expected {}, got {}", want["id"], got["id"]));
    }
    for name in MESSAGE {
        let (a, b) = (&want[name], &got[name]);
        if (is_empty(a) && is_empty(b)) || (name == "tool_call_id" && want["type"] == "tool" && a.is_null()) {
            continue;
        }
        same(a, b, &format!("{place}.{name}"), matches!(name, "tool_calls" | "invalid_tool_calls"))?;
    }
    match (&want["joined"], &got["joined"]) {
        (Json::Bool(true), got) if *got != true => Err(format!("{place}.joined: the mark is missing")),
        _ => Ok(()),
    }
}

fn list(of: &Json) -> &[Json] {
    of.as_array().map_or(&[], Vec::as_slice)
}

fn turns(want: &Json, got: &Json, place: &str) -> Compared {
    let sizes = |of: &Json| list(of).iter().map(|turn| list(&turn["messages"]).len()).collect::<Vec<_>>();
    if sizes(want) != sizes(got) {
        return Err(format!("{place}: messages in each turn: expected {:?}, got {:?}", sizes(want), sizes(got)));
    }
    for (at, (a, b)) in list(want).iter().zip(list(got)).enumerate() {
        for (nth, (x, y)) in list(&a["messages"]).iter().zip(list(&b["messages"])).enumerate() {
            message(x, y, &format!("{place}[{at}][{nth}]"))?;
        }
    }
    Ok(())
}

fn thread(want: &Json, got: &Json) -> Compared {
    let place = format!("thread {}", want["id"]);
    if got["id"].as_str().is_none_or(str::is_empty) {
        return Err(format!("{place}.id: an identifier expected"));
    }
    for name in ["parent", "title", "usage"] {
        if !(is_empty(&want[name]) && is_empty(&got[name])) {
            same(&want[name], &got[name], &format!("{place}.{name}"), false)?;
        }
    }
    // Fixtures that are older do not state them.
    for name in ["folder", "first_words"].into_iter().filter(|name| !is_empty(&want[*name])) {
        same(&want[name], &got[name], &format!("{place}.{name}"), false)?;
    }
    if let Some(want) = want["created_at"].as_str() {
        let instant = |text: &str| text.parse::<Timestamp>().ok().map(|at| at.as_micros() / 1000);
        if got["created_at"].as_str().and_then(instant) != instant(want) {
            return Err(format!("{place}.created_at: expected {want}, got {}", got["created_at"]));
        }
    }
    turns(&want["turns"], &got["turns"], &format!("{place}.turns"))?;
    let mut seen = HashSet::new();
    for message in list(&got["turns"]).iter().flat_map(|turn| list(&turn["messages"])) {
        if !seen.insert(message["id"].to_string()) {
            return Err(format!("{place}: the identifier {} occurs twice", message["id"]));
        }
    }
    branches(&want["branches"], &got["branches"], &place)
}

fn branches(want: &Json, got: &Json, place: &str) -> Compared {
    let mut left: Vec<&Json> = list(got).iter().collect();
    if list(want).len() != left.len() {
        return Err(format!("{place}.branches: {} expected, got {}", list(want).len(), left.len()));
    }
    for (at, branch) in list(want).iter().enumerate() {
        let place = format!("{place}.branches[{at}]");
        let compare = |other: &&Json| {
            same(&branch["after"], &other["after"], &format!("{place}.after"), false)?;
            turns(&branch["turns"], &other["turns"], &place)
        };
        let results: Vec<Compared> = left.iter().map(compare).collect();
        match results.iter().position(Result::is_ok) {
            Some(found) => {
                left.remove(found);
            }
            None => return results.into_iter().next().unwrap_or_else(|| Err(format!("{place} is missing"))),
        }
    }
    Ok(())
}

/// Compares a document with the expected one.
pub(crate) fn document(want: &Json, got: &Json) -> Compared {
    let (a, b) = (list(&want["threads"]), list(&got["threads"]));
    if a.len() != b.len() {
        return Err(format!("threads: {} expected, got {}", a.len(), b.len()));
    }
    let is_named = |of: &Json| a.iter().any(|thread| thread["id"] == of["id"]);
    let mut unnamed = b.iter().filter(|of| !is_named(of));
    for of in a {
        let other = match of["id"].is_null() {
            true => unnamed.next(),
            false => b.iter().find(|other| other["id"] == of["id"]),
        };
        thread(of, other.ok_or_else(|| format!("thread {} is missing", of["id"]))?)?;
    }
    same(&want["not_understood"], &got["not_understood"], "not_understood", false)
}

#[test]
fn the_comparison_finds_each_kind_of_difference() {
    let want = serde_json::json!({"threads": [{"id": "a", "created_at": "2026-01-01T00:00:00.000Z", "folder": "/a", "turns": [
        {"messages": [{"type": "ai", "id": "1", "text": "hi", "joined": true, "tool_calls": [{"id": null, "name": "f", "args": {"x": 1}}]}]}
    ], "branches": [{"after": 0, "turns": [{"messages": [{"type": "human", "id": null, "text": "q"}]}]}]}], "not_understood": {}});
    let change = |edit: fn(&mut Json)| {
        let mut got = want.clone();
        got["threads"][0]["turns"][0]["messages"][0]["tool_calls"][0]["id"] = "c".into();
        got["threads"][0]["branches"][0]["turns"][0]["messages"][0]["id"] = "2".into();
        edit(&mut got);
        document(&want, &got)
    };
    assert_eq!(change(|_| {}), Ok(()));
    let edits: [fn(&mut Json); 11] = [
        |got| got["threads"] = Json::Array(Vec::new()),
        |got| got["threads"][0]["id"] = "b".into(),
        |got| got["threads"][0]["title"] = "t".into(),
        |got| got["threads"][0]["folder"] = "/b".into(),
        |got| got["threads"][0]["turns"][0]["messages"][0]["joined"] = false.into(),
        |got| got["threads"][0]["created_at"] = "2026-01-01T00:00:00.001Z".into(),
        |got| got["threads"][0]["turns"][0]["messages"][0]["text"] = "ho".into(),
        |got| got["threads"][0]["turns"][0]["messages"][0]["id"] = "2".into(),
        |got| got["threads"][0]["turns"][0]["messages"][0]["tool_calls"][0]["args"]["x"] = 2.into(),
        |got| got["threads"][0]["branches"][0]["after"] = 1.into(),
        |got| got["not_understood"]["x"] = 1.into(),
    ];
    for (at, edit) in edits.into_iter().enumerate() {
        assert!(change(edit).is_err(), "edit {at} is found");
    }
}
