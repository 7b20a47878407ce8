//! The example `spans`: the file that it writes has the spans of both agents.

#[path = "../../examples/spans.rs"]
mod example;

use serde_json::Value;

#[test]
fn the_file_has_the_spans_of_both_agents() {
    let folder = std::env::temp_dir().join(format!("annals-spans-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("spans.jsonl");
    example::export(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();

    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let all = |value: &Value, name: &str| value[name].as_array().unwrap().clone();
    let scopes = lines.iter().flat_map(|line| all(line, "resourceSpans")).flat_map(|of| all(&of, "scopeSpans"));
    let spans: Vec<Value> = scopes.flat_map(|scope| all(&scope, "spans")).collect();
    let place = |name: &str| {
        let span = spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("{name}: {text}"));
        (span["spanId"].clone(), span["parentSpanId"].clone(), span["traceId"].clone())
    };
    let (guide, tool, inner) =
        (place("invoke_agent guide"), place("execute_tool ask_historian"), place("invoke_agent historian"));
    assert_eq!((&tool.1, &inner.1), (&guide.0, &tool.0));
    assert_eq!((&guide.2, &tool.2), (&tool.2, &inner.2), "one trace");
    assert_eq!(spans.iter().filter(|span| span["name"] == "chat test").count(), 3);
    let tool = spans.iter().find(|span| span["name"] == "execute_tool ask_historian").unwrap();
    let attribute = |name: &str| {
        let found = all(tool, "attributes").into_iter().find(|attribute| attribute["key"] == name);
        found.map(|attribute| attribute["value"]["stringValue"].clone())
    };
    assert_eq!(attribute("gen_ai.operation.name"), Some("execute_tool".into()));
    assert_eq!(attribute("gen_ai.tool.name"), Some("ask_historian".into()));
    assert_eq!(attribute("gen_ai.tool.call.arguments"), None);
}
