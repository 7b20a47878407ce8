//! Expressions: JSON in, JSON out. They never fail on any data.

use annals::base::Value;
use annals_graph::prelude::Message;
use serde_json::{Map, Value as Json, json};

/// The values that an expression can read.
#[derive(Clone, Default)]
pub(crate) struct Env {
    pub(crate) state: Json,
    pub(crate) vars: Map<String, Json>,
    pub(crate) calls: u64,
    pub(crate) attempt: u64,
    /// The run context.
    pub(crate) context: Json,
    /// The saved value of the last run of the entrypoint.
    pub(crate) previous: Json,
    /// The failure that an error handler handles.
    pub(crate) error: Json,
    /// The ids of the interrupts of the steps with a label.
    pub(crate) interrupts: Map<String, Json>,
}

/// Evaluates an expression.
pub(crate) fn eval(expr: &Json, env: &Env) -> Json {
    match expr {
        Json::Array(items) => items.iter().map(|item| eval(item, env)).collect(),
        Json::Object(map) => match map.iter().next() {
            Some((op, arg)) if map.len() == 1 && op.starts_with('$') => apply(op, arg, env),
            _ => Json::Object(map.iter().map(|(name, value)| (name.clone(), eval(value, env))).collect()),
        },
        plain => plain.clone(),
    }
}

fn apply(op: &str, arg: &Json, env: &Env) -> Json {
    let values = || -> Vec<Json> { list(arg).iter().map(|item| eval(item, env)).collect() };
    let at = |i: usize| list(arg).get(i).map_or(Json::Null, |item| eval(item, env));
    match op {
        "$lit" => arg.clone(),
        "$state" => match arg {
            Json::Null => env.state.clone(),
            Json::Array(parts) => get(&env.state, &parts[0]).unwrap_or_else(|| at(1)),
            name => get(&env.state, name).unwrap_or_default(),
        },
        "$var" => get(&Json::Object(env.vars.clone()), arg).unwrap_or_default(),
        "$get" => get(&at(0), &at(1)).unwrap_or_else(|| at(2)),
        "$add" => values().iter().fold(0, |sum: i64, value| sum.wrapping_add(int(value))).into(),
        "$mul" => values().iter().fold(1, |product: i64, value| product.wrapping_mul(int(value))).into(),
        "$sub" => int(&at(0)).wrapping_sub(int(&at(1))).into(),
        "$mod" => floor_mod(int(&at(0)), int(&at(1))).into(),
        "$len" => match eval(arg, env) {
            Json::String(text) => text.chars().count(),
            Json::Array(items) => items.len(),
            Json::Object(map) => map.len(),
            _ => 0,
        }
        .into(),
        "$concat" => values().into_iter().flat_map(items).collect(),
        "$str" => values().iter().map(text).collect::<String>().into(),
        "$eq" => (at(0) == at(1)).into(),
        "$lt" => less(&at(0), &at(1)).into(),
        "$not" => (!truthy(&eval(arg, env))).into(),
        "$and" => values().iter().all(truthy).into(),
        "$or" => values().iter().any(truthy).into(),
        "$if" => at(if truthy(&at(0)) { 1 } else { 2 }),
        "$map" => map_list(arg, env),
        "$range" => (0..int(&eval(arg, env)).max(0)).map(Json::from).collect(),
        "$dict" => {
            Json::Object(list(arg).iter().map(|pair| (text(&eval(&pair[0], env)), eval(&pair[1], env))).collect())
        }
        "$send" => json!({"$send": [at(0), at(1)]}),
        "$overwrite" => json!({"$overwrite": eval(arg, env)}),
        "$msg" => whole_message(eval(arg, env)),
        "$command" => json!({"$command": members(arg, env)}),
        "$attempt" => env.attempt.into(),
        "$calls" => env.calls.into(),
        "$previous" => env.previous.clone(),
        "$context" => get(&env.context, arg).unwrap_or_default(),
        "$final" => json!({"$final": [at(0), at(1)]}),
        "$error" => get(&env.error, arg).unwrap_or_default(),
        "$interrupt" => {
            let ids = env.interrupts.get(arg[0].as_str().unwrap_or_default()).cloned().unwrap_or_default();
            get(&ids, &arg[1]).unwrap_or_default()
        }
        _ => Json::Null,
    }
}

/// Returns a message in the format of the library, with its members in place of a role.
pub(crate) fn message(json: Json) -> Json {
    let Json::Object(mut map) = json else { return json };
    if let Some(role) = map.shift_remove("role") {
        let kind = match role.as_str() {
            Some("user") => json!("human"),
            Some("assistant") => json!("ai"),
            _ => role,
        };
        map.insert("type".into(), kind);
    }
    for (name, default) in [("content", json!("")), ("id", Json::Null)] {
        map.entry(name).or_insert(default);
    }
    Json::Object(map)
}

/// Returns a message with all its members, which distinguish it from a similar object.
fn whole_message(json: Json) -> Json {
    let short = message(json);
    match Message::try_from(Value::from(short.clone())).map(|message| Value::from_serialize(&message)) {
        Ok(Ok(whole)) => whole.to_json(),
        _ => short,
    }
}

/// Evaluates the members of an object, with any names.
pub(crate) fn members(object: &Json, env: &Env) -> Map<String, Json> {
    object.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), eval(value, env))).collect()
}

fn list(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}

fn items(json: Json) -> Vec<Json> {
    match json {
        Json::Array(items) => items,
        Json::Null => Vec::new(),
        other => vec![other],
    }
}

fn map_list(arg: &Json, env: &Env) -> Json {
    let mut inner = env.clone();
    let Json::Array(items) = eval(&arg[0], env) else { return json!([]) };
    let name = arg[1].as_str().unwrap_or_default();
    let body = |item| {
        inner.vars.insert(name.to_owned(), item);
        eval(&arg[2], &inner)
    };
    items.into_iter().map(body).collect()
}

/// Member of an object, or item of a list.
pub(crate) fn get(of: &Json, key: &Json) -> Option<Json> {
    match (of, key) {
        (Json::Object(map), Json::String(name)) => map.get(name).cloned(),
        (Json::Array(items), Json::Number(at)) => {
            let at = at.as_i64()?;
            let at = if at < 0 { at.checked_add(items.len() as i64)? } else { at };
            items.get(usize::try_from(at).ok()?).cloned()
        }
        _ => None,
    }
}

fn int(json: &Json) -> i64 {
    json.as_i64().unwrap_or(0)
}

fn floor_mod(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let rest = a.wrapping_rem(b);
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

fn less(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a.as_i64() < b.as_i64(),
        (Json::String(a), Json::String(b)) => a < b,
        _ => false,
    }
}

/// Returns whether a value counts as true.
pub(crate) fn truthy(json: &Json) -> bool {
    match json {
        Json::Null => false,
        Json::Bool(b) => *b,
        Json::Number(n) => n.as_i64() != Some(0),
        Json::String(text) => !text.is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Object(map) => !map.is_empty(),
    }
}

/// The text of a value: a string itself, else compact JSON with sorted members.
pub(crate) fn text(json: &Json) -> String {
    match json {
        Json::String(text) => text.clone(),
        other => sorted(other).to_string(),
    }
}

fn sorted(json: &Json) -> Json {
    match json {
        Json::Array(items) => items.iter().map(sorted).collect(),
        Json::Object(map) => {
            let mut members: Vec<_> = map.iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Json::Object(members.into_iter().collect())
        }
        plain => plain.clone(),
    }
}
