//! `docs/cli-json.schema.json`: the shapes of `docs/cli-json.md` as a JSON Schema, by which documents of the command
//! are validated.
//!
//! With the environment variable `ANNALS_SNAPSHOTS=renew` the test writes the file anew. The validation here knows the
//! keywords that the file uses, and is stricter than the schema: a member that the schema does not name is an error.

use super::contract::shapes;
use super::verbs::trip;
use super::*;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli-json.schema.json");

/// Returns the schema of the file.
pub(super) fn stored() -> Json {
    serde_json::from_str(&fs::read_to_string(FILE).unwrap()).unwrap()
}

/// Returns the name of a definition: `log-S` for `log -S`.
pub(super) fn definition(shape: &str) -> String {
    shape.split_whitespace().map(|word| word.trim_start_matches('-')).collect::<Vec<_>>().join("-")
}

/// Returns the schema of all shapes.
fn of_shapes() -> Json {
    let definitions: serde_json::Map<String, Json> =
        shapes().iter().map(|(name, shape)| (definition(name), of_shape(shape))).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The JSON of the command annals, version 1",
        "description": "The document of a verb is that of the definition with its name. docs/cli-json.md describes the members.",
        "$defs": definitions,
    })
}

fn of_shape(shape: &Json) -> Json {
    match shape {
        Json::String(types) => of_types(types),
        Json::Array(items) => json!({ "type": "array", "items": of_shape(&items[0]) }),
        Json::Object(members) => {
            let (mut properties, mut required, mut others) = (serde_json::Map::new(), Vec::new(), None);
            for (name, shape) in members {
                match (name.as_str(), name.strip_suffix('?')) {
                    ("*", _) => others = Some(of_shape(shape)),
                    ("schema", _) => {
                        properties.insert(name.clone(), json!({ "const": 1 }));
                        required.push(name.as_str());
                    }
                    (_, Some(optional)) => _ = properties.insert(optional.to_owned(), of_shape(shape)),
                    (name, None) => {
                        properties.insert(name.to_owned(), of_shape(shape));
                        required.push(name);
                    }
                }
            }
            let mut schema = json!({ "type": "object", "required": required, "properties": properties });
            if let Some(others) = others {
                schema["additionalProperties"] = others;
            }
            schema
        }
        other => panic!("{other} is not a shape"),
    }
}

/// Returns the schema of types such as `id|null` and `done|failed`.
fn of_types(types: &str) -> Json {
    let (mut names, mut words, mut format, mut reference) = (Vec::new(), Vec::new(), None, None);
    for one in types.split('|') {
        match one {
            "any" => return json!({}),
            "null" => names.push("null"),
            "text" => names.push("string"),
            "number" => names.push("number"),
            "bool" => names.push("boolean"),
            "id" | "time" => {
                names.push("string");
                format = Some(if one == "id" { "uuid" } else { "date-time" });
            }
            name if name.bytes().all(|byte| byte.is_ascii_uppercase()) => reference = Some(format!("#/$defs/{name}")),
            word => words.push(json!(word)),
        }
    }
    if let Some(reference) = reference {
        return match names[..] {
            [] => json!({ "$ref": reference }),
            _ => json!({ "anyOf": [{ "$ref": reference }, { "type": names }] }),
        };
    }
    if !words.is_empty() {
        assert!(names.iter().all(|name| *name == "null"), "{types} mixes words and types");
        words.extend(names.iter().map(|_| Json::Null));
        return json!({ "enum": words });
    }
    let mut schema = if let [name] = names[..] { json!({ "type": name }) } else { json!({ "type": names }) };
    if let Some(format) = format {
        schema["format"] = json!(format);
    }
    schema
}

/// Returns the first place at which a document breaks a schema.
pub(super) fn violation(value: &Json, schema: &Json, root: &Json, at: &str) -> Option<String> {
    for (keyword, rule) in schema.as_object().unwrap() {
        let broken = match keyword.as_str() {
            "$ref" => {
                let target = root.pointer(rule.as_str().unwrap().strip_prefix('#').unwrap()).unwrap();
                violation(value, target, root, at)
            }
            "anyOf" => {
                let fits = rule.as_array().unwrap().iter().any(|one| violation(value, one, root, at).is_none());
                (!fits).then(|| format!("{at} is {value}, which no alternative allows"))
            }
            "const" => (value != rule).then(|| format!("{at} is {value}, not {rule}")),
            "enum" => (!rule.as_array().unwrap().contains(value)).then(|| format!("{at} is {value}, not of {rule}")),
            "type" => {
                let own = match value {
                    Json::Null => "null",
                    Json::Bool(_) => "boolean",
                    Json::Number(_) => "number",
                    Json::String(_) => "string",
                    Json::Array(_) => "array",
                    Json::Object(_) => "object",
                };
                let fits = rule == own || rule.as_array().is_some_and(|types| types.contains(&json!(own)));
                (!fits).then(|| format!("{at} is a {own}, not {rule}"))
            }
            "format" => {
                value.as_str().filter(|text| !has_format(text, rule)).map(|text| format!("{at} is {text:?}, no {rule}"))
            }
            "required" => {
                let names = rule.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                names.filter(|name| value.get(name).is_none()).map(|name| format!("{at}.{name} is absent")).next()
            }
            "properties" => value.as_object().into_iter().flatten().find_map(|(name, value)| {
                match rule.get(name).or_else(|| schema.get("additionalProperties")) {
                    Some(schema) => violation(value, schema, root, &format!("{at}.{name}")),
                    None => Some(format!("{at}.{name} is not in the schema")),
                }
            }),
            "items" => {
                let items = value.as_array().into_iter().flatten().enumerate();
                items.filter_map(|(n, item)| violation(item, rule, root, &format!("{at}[{n}]"))).next()
            }
            // `properties` reads it, and each object has that.
            "additionalProperties" => None,
            keyword => panic!("{at}: the validation does not know the keyword {keyword}"),
        };
        if broken.is_some() {
            return broken;
        }
    }
    None
}

fn has_format(text: &str, format: &Json) -> bool {
    match format.as_str() {
        Some("uuid") => {
            let groups: Vec<usize> = text.split('-').map(str::len).collect();
            groups == [8, 4, 4, 4, 12] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
        }
        Some("date-time") => text.parse::<annals::base::Timestamp>().is_ok(),
        _ => panic!("the validation does not know the format {format}"),
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the file is renewed when it is asked for")]
fn the_schema_has_the_shapes_of_the_document() {
    let expected = of_shapes();
    if std::env::var_os("ANNALS_SNAPSHOTS").is_some_and(|value| value == "renew") {
        fs::write(FILE, serde_json::to_string_pretty(&expected).unwrap() + "\n").unwrap();
    }
    let found = stored();
    for (name, schema) in expected["$defs"].as_object().unwrap() {
        assert_eq!(&found["$defs"][name], schema, "{name}: ANNALS_SNAPSHOTS=renew writes the file anew");
    }
    assert_eq!(found, expected, "ANNALS_SNAPSHOTS=renew writes the file anew");
}

#[test]
fn the_documents_of_a_store_are_valid() {
    let root = stored();
    let (ran, trip, asking) = (Bench::ran(), trip(), super::outside::asking());
    let points: [(&str, &Bench, &[&str]); 12] = [
        ("threads", &ran, &["threads"]),
        ("log", &ran, &["log", "research:notes"]),
        ("log-S", &trip, &["log", "trip", "-S", "Oslo"]),
        ("show", &ran, &["show", "research:notes~3", "--writes"]),
        ("show-PATH", &trip, &["show", "trip", "plan"]),
        ("steps", &ran, &["steps", "research:notes"]),
        ("runs", &asking, &["runs"]),
        ("pending", &asking, &["pending"]),
        ("stats", &ran, &["stats"]),
        ("stats-by", &ran, &["stats", "--by", "node"]),
        ("diff", &trip, &["diff", "trip~3", "trip"]),
        ("diff", &ran, &["diff", "research:notes~8"]),
    ];
    for (name, bench, arguments) in points {
        let schema = &root["$defs"][name];
        let document = bench.json(arguments);
        assert_eq!(violation(&document, schema, &root, name), None);
        let mut changed = 0;
        broken(&document, schema, &root, &mut |wrong, place| {
            changed += 1;
            assert!(
                violation(&put(&document, place, wrong.as_ref()), schema, &root, name).is_some(),
                "{name} {place}: {wrong:?}"
            );
        });
        assert!(changed >= 3, "{name}: only {changed} wrong documents were made");
    }
}

/// Returns a document with another value at a pointer, or without the member.
fn put(document: &Json, place: &str, value: Option<&Json>) -> Json {
    let mut document = document.clone();
    match value {
        Some(value) => document.pointer_mut(place).unwrap().clone_from(value),
        None => {
            let (parent, name) = place.rsplit_once('/').unwrap();
            document.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name).unwrap();
        }
    }
    document
}

/// Calls a function with wrong values of the members of a document, and with each required member removed.
fn broken(document: &Json, schema: &Json, root: &Json, check: &mut dyn FnMut(Option<Json>, &str)) {
    let mut left = vec![(String::new(), document, schema)];
    while let Some((place, value, schema)) = left.pop() {
        let schema = match schema.get("$ref") {
            Some(target) => root.pointer(&target.as_str().unwrap()[1..]).unwrap(),
            None => schema,
        };
        if schema.get("enum").is_some() || schema.get("format").is_some() {
            check(Some(json!("no such word")), &place);
        }
        if schema.get("const").is_some() {
            check(Some(json!(2)), &place);
        }
        if schema.get("type").is_some() {
            let is_object = schema["type"] == "object";
            check(Some(if is_object { json!("text") } else { json!({ "text": "text" }) }), &place);
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            check(None, &format!("{place}/{}", name.as_str().unwrap()));
        }
        let members = value.as_object().into_iter().flatten();
        let known = members.filter_map(|(name, value)| Some((name, value, schema.get("properties")?.get(name)?)));
        left.extend(known.map(|(name, value, schema)| (format!("{place}/{name}"), value, schema)));
        let first = value.as_array().and_then(|items| items.first());
        left.extend(first.zip(schema.get("items")).map(|(item, schema)| (format!("{place}/0"), item, schema)));
    }
}

#[test]
fn a_member_that_the_schema_does_not_name_is_found() {
    let root = stored();
    let schema = &root["$defs"]["fork"];
    let id = "1f1e67f3-f9c0-6b70-bfff-2a4f0d9f3c11";
    let mut fork =
        json!({ "schema": 1, "thread": "a", "checkpoint": id, "forked_from": { "thread": "b", "checkpoint": id } });
    assert_eq!(violation(&fork, schema, &root, "fork"), None);
    fork["forked_from"]["step"] = json!(1);
    assert_eq!(violation(&fork, schema, &root, "fork"), Some("fork.forked_from.step is not in the schema".into()));
    assert_eq!(definition("stats --by"), "stats-by");
}
