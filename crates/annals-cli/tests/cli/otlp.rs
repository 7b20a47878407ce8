//! The spans of a thread in OpenTelemetry's JSON: the JSON mapping of its protocol, ids, parents and attributes.

use super::*;

/// The fields of the messages of `opentelemetry/proto/trace/v1/trace.proto` and of those that it uses, with their types
/// as the JSON mapping has them.
const MESSAGES: &[(&str, &[(&str, &str)])] = &[
    ("TracesData", &[("resourceSpans", "[ResourceSpans")]),
    ("ResourceSpans", &[("resource", "Resource"), ("scopeSpans", "[ScopeSpans"), ("schemaUrl", "text")]),
    ("Resource", &[("attributes", "[KeyValue"), ("droppedAttributesCount", "uint32")]),
    ("ScopeSpans", &[("scope", "InstrumentationScope"), ("spans", "[Span"), ("schemaUrl", "text")]),
    ("InstrumentationScope", &[("name", "text"), ("version", "text"), ("attributes", "[KeyValue")]),
    (
        "Span",
        &[
            ("traceId", "hex32"),
            ("spanId", "hex16"),
            ("parentSpanId", "hex16"),
            ("traceState", "text"),
            ("flags", "uint32"),
            ("name", "text"),
            ("kind", "uint32"),
            ("startTimeUnixNano", "int64"),
            ("endTimeUnixNano", "int64"),
            ("attributes", "[KeyValue"),
            ("status", "Status"),
        ],
    ),
    ("Status", &[("message", "text"), ("code", "uint32")]),
    ("KeyValue", &[("key", "text"), ("value", "AnyValue")]),
    ("AnyValue", &[("stringValue", "text"), ("boolValue", "bool"), ("intValue", "int64"), ("doubleValue", "number")]),
];

/// Returns the first place where a value is not of a type.
fn violation(value: &Json, of: &str, at: &str) -> Option<String> {
    let digits = |least: usize, most: usize, hex: bool| {
        value.as_str().is_some_and(|text| {
            let fits = |c: char| if hex { matches!(c, '0'..='9' | 'a'..='f') } else { c.is_ascii_digit() };
            (least..=most).contains(&text.len()) && text.chars().all(fits) && (!hex || text.contains(|c| c != '0'))
        })
    };
    let is_right = match of {
        "text" => value.is_string(),
        "bool" => value.is_boolean(),
        "number" => value.is_number(),
        "uint32" => value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
        "int64" => digits(1, 19, false),
        "hex16" => digits(16, 16, true),
        "hex32" => digits(32, 32, true),
        list if list.starts_with('[') => {
            let Some(items) = value.as_array() else { return Some(format!("{at} is no list")) };
            let each = items.iter().enumerate();
            return each.filter_map(|(n, item)| violation(item, &list[1..], &format!("{at}[{n}]"))).next();
        }
        message => {
            let fields = MESSAGES.iter().find(|(name, _)| *name == message).unwrap().1;
            let Some(members) = value.as_object() else { return Some(format!("{at} is no object")) };
            if message == "AnyValue" && members.len() != 1 {
                return Some(format!("{at} has {} values", members.len()));
            }
            return members.iter().find_map(|(name, value)| match fields.iter().find(|(field, _)| field == name) {
                Some((_, of)) => violation(value, of, &format!("{at}.{name}")),
                None => Some(format!("{at}.{name} is not a field of {message}")),
            });
        }
    };
    (!is_right).then(|| format!("{at} is {value}, not {of}"))
}

fn spans(bench: &Bench, thread: &str) -> Vec<Json> {
    let exported = bench.annals(&["export", thread, "--format", "otlp-json"]);
    assert_eq!(code(&exported), 0, "{exported:?}");
    let text = String::from_utf8(exported.stdout).unwrap();
    let mut spans = Vec::new();
    for line in text.lines() {
        let data: Json = serde_json::from_str(line).unwrap();
        assert_eq!(violation(&data, "TracesData", "data"), None);
        spans.extend(data["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().iter().cloned());
    }
    spans
}

/// Returns the value of an attribute, null without it.
fn attribute(span: &Json, key: &str) -> Json {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    found.and_then(|found| found["value"].as_object()?.values().next().cloned()).unwrap_or_default()
}

#[test]
fn runs_steps_and_model_calls_are_spans() {
    let bench = super::snapshots::fixed();
    let trip = spans(&bench, "trip");
    assert_eq!(trip, spans(&bench, "trip"), "a second export has the same ids");
    let ids: std::collections::BTreeSet<&str> = trip.iter().map(|span| span["spanId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), trip.len());
    for span in &trip {
        assert!(span["startTimeUnixNano"].as_str().unwrap() <= span["endTimeUnixNano"].as_str().unwrap());
        match span.get("parentSpanId") {
            Some(parent) => {
                let parent = trip.iter().find(|other| other["spanId"] == *parent).unwrap();
                assert_eq!(parent["traceId"], span["traceId"]);
            }
            None => assert_eq!(attribute(span, "gen_ai.operation.name"), "invoke_workflow"),
        }
        assert_eq!(attribute(span, "gen_ai.conversation.id"), "trip");
    }
    let call = trip.iter().find(|span| span["name"] == "chat m-1").unwrap();
    assert_eq!(
        (attribute(call, "gen_ai.usage.input_tokens"), attribute(call, "gen_ai.request.model")),
        (json!("812"), json!("m-1"))
    );
    assert_eq!((&call["kind"], attribute(call, "annals.cost_usd")), (&json!(3), json!(0.004)));
    let model = trip.iter().find(|span| span["name"] == "model").unwrap();
    assert_eq!((&model["kind"], attribute(model, "annals.state")), (&json!(1), json!("done")));
    assert!(trip.iter().all(|span| !span.to_string().contains("Gasthof")), "no text of a message");
    let failed = ["order-17", "order-18"].into_iter().flat_map(|order| spans(&bench, order));
    let failed: Vec<Json> = failed.filter(|span| span["status"]["code"] == 2).collect();
    assert!(failed.iter().any(|span| span["status"]["message"].as_str().unwrap().contains("refused")), "{failed:?}");
}

#[test]
fn the_calls_of_pruned_checkpoints_are_left_out() {
    let bench = Bench::new();
    let store = Store::open(bench.path("store.db")).unwrap();
    let thread = store.thread("t").unwrap();
    for n in 0..3 {
        thread.write().set("n", n).usage(annals::history::ModelUsage::new(3, 4)).commit().unwrap();
    }
    drop((thread, store));
    let calls = |bench: &Bench| {
        let all = spans(bench, "t");
        all.iter().filter(|span| span["name"] == "chat").map(|span| span["spanId"].clone()).collect::<Vec<_>>()
    };
    let before = calls(&bench);
    assert_eq!(before.len(), 3);
    bench.text(&["prune", "t", "--keep-last", "1", "--yes"]);
    assert_eq!(calls(&bench), before[2..], "the ids of the others stay");
}

#[test]
fn a_wrong_document_is_not_of_the_protocol() {
    for (wrong, at) in [
        (json!({ "resourceSpans": {} }), "data.resourceSpans is no list"),
        (json!({ "resource_spans": [] }), "data.resource_spans is not a field"),
        (json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": [{ "startTimeUnixNano": 1 }] }] }] }), "not int64"),
        (json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": [{ "spanId": "AAAA" }] }] }] }), "not hex16"),
    ] {
        assert!(violation(&wrong, "TracesData", "data").is_some_and(|found| found.contains(at)), "{wrong}");
    }
    let bench = super::snapshots::fixed();
    assert_eq!(code(&bench.annals(&["export", "trip", "--format", "otlp-json", "-o", "a.jsonl"])), 2);
    assert_eq!(code(&bench.annals(&["export", "nobody", "--format", "otlp-json"])), 3);
}
