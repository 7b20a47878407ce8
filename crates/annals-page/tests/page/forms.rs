//! The forms for resume values: one for each interrupt, with inputs by its schema, its options or its actions.

use annals::state::DynState;
use annals_graph::prelude::*;

use super::writes::{form_token, post, writing};
use super::*;

/// A graph with a node for each interrupt, which ask at the same time; each writes its resume value to a list.
pub(crate) fn asking(store: &Store, name: &str, interrupts: Vec<(Json, Option<Json>)>) -> CompiledGraph<DynState> {
    let mut graph = StateGraph::with_schema(DynSchema::new().append("values").build());
    for (at, (value, schema)) in interrupts.into_iter().enumerate() {
        let node = format!("ask{at}");
        graph = graph
            .node(node.as_str(), move |_: &DynState, context: &Context| {
                let value = Value::from(value.clone());
                let resumed = match &schema {
                    Some(schema) => context.interrupt_with(value, schema.clone())?,
                    None => context.interrupt(value)?,
                };
                Ok(DynUpdate::new().set("values", resumed))
            })
            .edge(START, node.as_str());
    }
    let graph = graph.compile().unwrap();
    assert!(!graph.invoke(&store.thread(name).unwrap(), DynUpdate::new()).unwrap().is_done());
    graph
}

/// Returns the part of the screen that has the forms of an interrupt, by a text of it, and the id in it.
fn form_with(shown: &str, text: &str) -> (String, String) {
    let form = shown.split("<form method=\"post\"").find(|form| form.contains(text) && form.contains("/resume\""));
    let form = form.unwrap_or_else(|| panic!("no form has {text}: {shown}"));
    let id = form.split("name=\"id\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    (form.to_owned(), id)
}

/// Fills the form of an interrupt; returns the status and the address or the text of the response.
fn fill(page: &Page, thread: &str, id: &str, fields: &str) -> (u16, String) {
    let token = form_token(page, "/runs");
    let response = page.handle(&post(&format!("/t/{thread}/resume"), format!("form={token}&id={id}&{fields}")));
    let location = response.value_of("location").map(str::to_owned);
    (response.status, location.unwrap_or_else(|| response.text()))
}

fn values(store: &Store, graph: &CompiledGraph<DynState>, thread: &str) -> Json {
    let thread = store.thread(thread).unwrap();
    assert!(graph.invoke(&thread, Input::Continue).unwrap().is_done());
    thread.head().unwrap().unwrap().get("values").unwrap().unwrap().to_json()
}

#[test]
fn each_of_several_interrupts_has_a_form() {
    let store = Store::memory();
    let graph = asking(&store, "trip", vec![(json!("hotel?"), None), (json!("train?"), None)]);
    let page = writing(&store);
    let shown = html(&page, "/runs");
    let ((_, hotel), (_, train)) = (form_with(&shown, "hotel?"), form_with(&shown, "train?"));
    assert_ne!(hotel, train);
    let command = format!("annals answer trip JSON --id {hotel} --store chats.db");
    assert!(shown.contains(&command), "{shown}");
    let commands = document(&page, "/runs.json")["runs"][0]["commands"].clone();
    assert!(commands.as_array().unwrap().contains(&json!(command)), "{commands}");
    let listed = document(&page, "/runs.json")["runs"][0]["interrupts"].clone();
    assert_eq!(listed.as_array().unwrap().iter().map(|open| open["interrupt"].clone()).collect::<Vec<_>>().len(), 2);
    assert!(
        listed.as_array().unwrap().iter().any(|open| open["interrupt"] == hotel.as_str() && open["value"] == "hotel?")
    );

    assert_eq!(fill(&page, "trip", "", "value=7").0, 409, "the form names no interrupt");
    assert_eq!(fill(&page, "trip", &train, "value=by+night"), (303, "/runs?status=interrupted".into()));
    let left = html(&page, "/runs");
    assert!(left.contains("hotel?") && !left.contains("train?"), "{left}");
    assert_eq!(fill(&page, "trip", &train, "value=by+day").0, 409, "an interrupt takes one value");
    assert_eq!(fill(&page, "trip", &hotel, "value=%7B%22stars%22%3A3%7D"), (303, "/runs?status=running".into()));
    let mut found = values(&store, &graph, "trip").as_array().unwrap().clone();
    found.sort_by_key(ToString::to_string);
    assert_eq!(found, [json!("by night"), json!({ "stars": 3 })]);
}

#[test]
fn a_schema_has_inputs() {
    let store = Store::memory();
    let schema = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "title": "City <b>", "description": "of the \"hotel\"", "default": "B&rn" },
            "nights": { "type": "integer", "minimum": 1 },
            "budget": { "type": ["number", "null"] },
            "class": { "enum": ["first", "second"], "default": "second" },
            "sure": { "type": "boolean" },
        },
        "required": ["city", "nights", "sure"],
    });
    let graph = asking(&store, "trip", vec![(json!("Which trip?"), Some(schema))]);
    let page = writing(&store);
    let (form, id) = form_with(&html(&page, "/runs"), "Which trip?");
    for markup in [
        "City &lt;b&gt; <input name=\"in.city\" value=\"B&amp;rn\" required=\"\" size=\"40\">",
        "of the &quot;hotel&quot;",
        "<input name=\"in.nights\" value=\"\" required=\"\" type=\"number\" step=\"1\">",
        "<input name=\"in.budget\" value=\"\" type=\"number\" step=\"any\">",
        "<select name=\"in.class\"><option value=\"\">choose</option><option value=\"0\">first</option>\
         <option value=\"1\" selected=\"\">second</option></select>",
        "<select name=\"in.sure\" required=\"\">",
    ] {
        assert!(form.contains(markup), "{markup}: {form}");
    }
    for (fields, reason) in [
        ("in.nights=2&in.sure=0", "city is empty"),
        ("in.city=Bern&in.nights=two&in.sure=0", "nights is not an integer"),
        ("in.city=Bern&in.nights=0&in.sure=0", "$.nights"),
        ("in.city=Bern&in.nights=1&in.sure=5", "5 is not the number of an option"),
        ("", "city is empty"),
    ] {
        let (status, text) = fill(&page, "trip", &id, fields);
        assert!(status == 400 && text.contains(reason), "{fields}: {status} {text}");
    }
    let filled = fill(&page, "trip", &id, "in.city=Bern&in.nights=2&in.budget=&in.class=0&in.sure=1");
    assert_eq!(filled, (303, "/runs?status=running".into()));
    let expected = json!([{ "city": "Bern", "nights": 2, "class": "first", "sure": false }]);
    assert_eq!(values(&store, &graph, "trip"), expected);
}

#[test]
fn options_are_a_choice() {
    let store = Store::memory();
    let options = json!([{ "label": "by <train>", "value": { "means": "train" } }, "by bus", 3]);
    let graph = asking(&store, "trip", vec![(json!({ "question": "How?", "options": options }), None)]);
    let page = writing(&store);
    let (form, id) = form_with(&html(&page, "/runs"), "How?");
    assert!(
        form.contains("value=\"0\" dir=\"auto\">by &lt;train&gt;</button>")
            && form.contains("value=\"1\" dir=\"auto\">by bus</button>"),
        "few values have a button each: {form}"
    );
    assert_eq!(fill(&page, "trip", &id, "in.value=3").0, 400, "there are three options");
    assert_eq!(fill(&page, "trip", &id, "in.value=0").0, 303);
    assert_eq!(values(&store, &graph, "trip"), json!([{ "means": "train" }]));
}

#[test]
fn actions_have_a_decision_each() {
    let store = Store::memory();
    let request = json!({
        "action_requests": [
            { "name": "send", "args": { "to": "</textarea>" }, "description": "Send the mail?" },
            { "name": "remove", "args": {} },
            { "name": "book", "args": { "n": 1 } },
        ],
        "review_configs": [
            { "action_name": "send", "allowed_decisions": ["approve", "edit", "reject"] },
            { "action_name": "remove", "allowed_decisions": ["approve", "reject"] },
        ],
    });
    let graph = asking(&store, "agent", vec![(request, None)]);
    let page = writing(&store);
    let (form, id) = form_with(&html(&page, "/runs"), "Send the mail?");
    assert!(html(&page, "/runs").contains("leave for send, remove, book?"), "{form}");
    assert!(form.contains("<legend dir=\"auto\">send</legend>") && form.contains("&lt;/textarea&gt;"), "{form}");
    assert!(
        form.contains("name=\"in.0.args\"") && !form.contains("name=\"in.1.args\""),
        "removal cannot be edited: {form}"
    );
    let edited = "%7B%22to%22%3A%22eva%22%7D";
    for (fields, reason) in [
        ("in.0.type=0&in.1.type=0".to_owned(), "no decision about book"),
        (format!("in.0.type=1&in.0.args=x{edited}&in.1.type=0&in.2.type=0"), "the arguments of send"),
        ("in.0.type=0&in.1.type=2&in.2.type=0".to_owned(), "2 is not the number of an option"),
    ] {
        let (status, text) = fill(&page, "agent", &id, &fields);
        assert!(status == 400 && text.contains(reason), "{fields}: {status} {text}");
    }
    let fields = format!("in.0.type=1&in.0.args={edited}&in.1.type=1&in.1.message=keep+it&in.2.type=0&in.2.message=x");
    assert_eq!(fill(&page, "agent", &id, &fields).0, 303);
    let decisions = json!([
        { "type": "edit", "edited_action": { "name": "send", "args": { "to": "eva" } } },
        { "type": "reject", "message": "keep it" },
        { "type": "approve" },
    ]);
    assert_eq!(values(&store, &graph, "agent"), json!([{ "decisions": decisions }]));
}
