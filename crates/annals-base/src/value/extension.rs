//! Objects of Python in extensions, as LangGraph's serializer writes them, for people: the module, the class and the
//! fields.
//!
//! Invariant: a payload is shown in one way, whoever shows it. *Absent:* the execution of anything in a payload, and
//! the way back: an extension is stored as its bytes.

use serde_json::{Value as Json, json};

use super::Value;
use crate::codec::{Codec, decode_value};
use crate::limits::SHOWN_EXTENSIONS_MAX;

impl Value {
    /// Returns an extension of LangGraph's serializer as JSON, given its payload as JSON: an object of one member whose
    /// name begins with `$`, such as `$datetime`, `$uuid`, `$decimal`, `$set`, or `$pydantic` with module, class and
    /// fields. `None` if the payload does not name a class.
    pub fn ext_to_json(kind: i8, payload: &Json) -> Option<Json> {
        object(kind, payload)
    }
}

/// Returns an extension as JSON, inside `outside` others. A message is shown by its fields, which name its type.
pub(super) fn shown(kind: i8, payload: &[u8], outside: usize) -> Option<Json> {
    (outside < SHOWN_EXTENSIONS_MAX).then_some(())?;
    let payload = decode_value(Codec::MsgPack, payload).ok()?.json_inside(outside + 1);
    let is_message = kind == 5 && payload.get(0)?.as_str()?.starts_with("langchain_core.messages.");
    match payload.get(2) {
        Some(fields) if is_message && fields.get("type").is_some_and(Json::is_string) => Some(fields.clone()),
        _ => object(kind, &payload),
    }
}

fn object(kind: i8, payload: &Json) -> Option<Json> {
    match kind {
        7 => return Some(json!({ "$delta_snapshot": payload })),
        6 => return Some(json!({ "$ndarray": payload })),
        _ => {}
    }
    let (module, class, of) = (payload.get(0)?.as_str()?, payload.get(1)?.as_str()?, payload.get(2)?);
    let whole = |name: &str| json!({ name: [module, class, of] });
    let ints = || of.as_array()?.iter().map(Json::as_i64).collect::<Option<Vec<_>>>();
    Some(match (kind, module, class) {
        (4 | 5, ..) => whole("$pydantic"),
        (3, "datetime", "datetime") => json!({ "$datetime": of }),
        (0, "builtins", "set" | "frozenset") => {
            let mut items = of.as_array()?.clone();
            items.sort_by_cached_key(canonical);
            json!({ format!("${class}"): items })
        }
        (0, "collections", "deque") => json!({ "$deque": of }),
        (0, "uuid", "UUID") => {
            let hex = of.as_str()?;
            let part = |from: usize, to: usize| hex.get(from..to);
            let parts = [part(0, 8)?, part(8, 12)?, part(12, 16)?, part(16, 20)?, part(20, hex.len())?];
            json!({ "$uuid": parts.join("-") })
        }
        (0, "decimal", "Decimal") => json!({ "$decimal": of }),
        (0, "zoneinfo", "ZoneInfo") => json!({ "$zoneinfo": of }),
        (0, "ipaddress", _) => json!({ "$ip": [class, of] }),
        (0, ..) => whole("$ctor"),
        (1, "pathlib" | "pathlib._local", _) => {
            let parts: Vec<&str> = of.as_array()?.iter().map(Json::as_str).collect::<Option<_>>()?;
            let path = match parts.split_first() {
                Some((&"/", rest)) => format!("/{}", rest.join("/")),
                _ => parts.join("/"),
            };
            json!({ "$path": path })
        }
        (1, "re", "compile") => json!({ "$regex": of }),
        (1, "datetime", "timedelta") => json!({ "$timedelta": of }),
        (1, "datetime", "date") => match *ints()? {
            [year, month, day] => json!({ "$date": format!("{year:04}-{month:02}-{day:02}") }),
            _ => return None,
        },
        (1, "datetime", "timezone") => {
            let delta = of.get(0)?.get("$timedelta")?;
            json!({ "$timezone": [delta.get(0)?, delta.get(1)?] })
        }
        (1, "langgraph.types", "Send") => json!({ "$send": [of.get(0)?, of.get(1)?] }),
        (1, ..) => whole("$ctor_args"),
        (2, "datetime", "time") => json!({ "$time": time(of)? }),
        (2, ..) => whole("$ctor_kwargs"),
        _ => return None,
    })
}

/// Returns a time as `isoformat` writes it.
fn time(fields: &Json) -> Option<String> {
    let field = |name: &str| fields.get(name)?.as_i64();
    let mut text = format!("{:02}:{:02}:{:02}", field("hour")?, field("minute")?, field("second")?);
    if let micros @ 1.. = field("microsecond")? {
        text += &format!(".{micros:06}");
    }
    if let Some(zone) = fields.get("tzinfo")?.get("$timezone") {
        let seconds = zone.get(0)?.as_i64()?.checked_mul(86_400)?.checked_add(zone.get(1)?.as_i64()?)?;
        let minutes = seconds.abs() / 60;
        let sign = if seconds < 0 { '-' } else { '+' };
        text += &format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60);
    }
    Some(text)
}

/// Returns a value with the names of each object in order, without blanks.
fn canonical(value: &Json) -> String {
    fn sorted(value: &Json) -> Json {
        match value {
            Json::Array(items) => items.iter().map(sorted).collect(),
            Json::Object(map) => {
                let mut members: Vec<_> = map.iter().collect();
                members.sort_by_key(|(name, _)| *name);
                members.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect()
            }
            other => other.clone(),
        }
    }
    sorted(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Encoded;

    fn ext(kind: i8, payload: &Json) -> Value {
        Value::Ext(kind, Encoded::encode(&Value::from(payload.clone())).unwrap().bytes)
    }

    #[test]
    fn objects_of_python_are_shown_by_class_and_fields() {
        let document =
            json!(["langchain_core.documents.base", "Document", {"page_content": "Bern", "metadata": {}}, "v"]);
        let message = json!(["langchain_core.messages.human", "HumanMessage", {"content": "hi", "type": "human"}, "v"]);
        for (kind, payload, expected) in [
            (5, &document, json!({"$pydantic": [document[0], document[1], document[2]]})),
            (5, &message, json!({"content": "hi", "type": "human"})),
            (
                3,
                &json!(["datetime", "datetime", "2026-01-02T03:04:05+00:00", "fromisoformat"]),
                json!({"$datetime": "2026-01-02T03:04:05+00:00"}),
            ),
            (
                0,
                &json!(["uuid", "UUID", "0123456789abcdef0123456789abcdef"]),
                json!({"$uuid": "01234567-89ab-cdef-0123-456789abcdef"}),
            ),
            (0, &json!(["decimal", "Decimal", "1.50"]), json!({"$decimal": "1.50"})),
            (0, &json!(["builtins", "set", [2, 1]]), json!({"$set": [1, 2]})),
            (
                2,
                &json!(["datetime", "time", {"hour": 1, "minute": 2, "second": 3, "microsecond": 0, "tzinfo": null}]),
                json!({"$time": "01:02:03"}),
            ),
            (1, &json!(["pathlib", "PosixPath", ["/", "tmp", "a"]]), json!({"$path": "/tmp/a"})),
            (9, &json!(["uuid", "UUID", "x"]), json!({"$ext": [9, "k6R1dWlkpFVVSUSheA=="]})),
        ] {
            assert_eq!(ext(kind, payload).to_json(), expected, "{payload}");
        }
        let nested = ext(0, &json!(["builtins", "set", []]));
        assert_eq!(Value::List(vec![nested]).to_json(), json!([{"$set": []}]));
        assert_eq!(Value::Ext(5, vec![0xc1]).to_json(), json!({"$ext": [5, "wQ=="]}));
        let deep = (0..1000).fold(Value::Null, |inner, _| {
            let payload = Value::List(vec!["builtins".into(), "set".into(), Value::List(vec![inner])]);
            Value::Ext(0, Encoded::encode(&payload).unwrap().bytes)
        });
        let text = deep.to_json().to_string();
        assert_eq!((text.matches("$set").count(), text.matches("$ext").count()), (SHOWN_EXTENSIONS_MAX, 1));
    }
}
