//! Conditions on the values of the key-value memory.

use std::cmp::Ordering;

use crate::base::Value;
use crate::store::error::StoreError;

/// How a member of a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvCompare {
    /// Equal (`$eq`).
    Eq,
    /// Not equal (`$ne`).
    Ne,
    /// Greater (`$gt`).
    Gt,
    /// Greater or equal (`$gte`).
    Gte,
    /// Less (`$lt`).
    Lt,
    /// Less or equal (`$lte`).
    Lte,
}

/// The condition on a member.
#[derive(Clone, Debug)]
pub(super) enum Test {
    /// It equals the value.
    Is(Value),
    /// It compares so with the value.
    Compare(KvCompare, Value),
    /// All of these hold.
    All(Vec<Test>),
    /// It is an object, and these hold for its members.
    Object(Vec<(String, Test)>),
    /// It is a list of as many items, and these hold for them in turn.
    List(Vec<Test>),
}

impl Test {
    /// Reads a value that is to be equalled: an object must have the members given and may have others.
    pub(super) fn like(value: Value) -> Self {
        match value {
            Value::Map(map) => Self::Object(map.into_iter().map(|(name, value)| (name, Self::like(value))).collect()),
            Value::List(items) => Self::List(items.into_iter().map(Self::like).collect()),
            value => Self::Is(value),
        }
    }

    /// Reads a value that is to be equalled, or an object of comparisons.
    pub(super) fn parse(value: Value) -> Result<Self, StoreError> {
        Ok(match value {
            Value::Map(map) if map.keys().any(|name| name.starts_with('$')) => {
                let tests = map.into_iter().map(|(name, value)| Ok(Self::Compare(compare_of(&name)?, value)));
                Self::All(tests.collect::<Result<_, StoreError>>()?)
            }
            Value::Map(map) => {
                let members = map.into_iter().map(|(name, value)| Ok((name, Self::parse(value)?)));
                Self::Object(members.collect::<Result<_, StoreError>>()?)
            }
            Value::List(items) => Self::List(items.into_iter().map(Self::parse).collect::<Result<_, _>>()?),
            value => Self::Is(value),
        })
    }

    /// Returns whether it holds for a member. A missing one is null.
    pub(super) fn holds(&self, member: Option<&Value>) -> bool {
        let member = member.unwrap_or(&Value::Null);
        match self {
            Self::Is(value) => same(member, value),
            Self::Compare(how, value) => compares(*how, member, value),
            Self::All(tests) => tests.iter().all(|test| test.holds(Some(member))),
            Self::Object(tests) => {
                member.as_map().is_some_and(|map| tests.iter().all(|(name, test)| test.holds(map.get(name))))
            }
            Self::List(tests) => member.as_list().is_some_and(|items| {
                items.len() == tests.len() && tests.iter().zip(items).all(|(test, item)| test.holds(Some(item)))
            }),
        }
    }
}

fn compare_of(name: &str) -> Result<KvCompare, StoreError> {
    Ok(match name {
        "$eq" => KvCompare::Eq,
        "$ne" => KvCompare::Ne,
        "$gt" => KvCompare::Gt,
        "$gte" => KvCompare::Gte,
        "$lt" => KvCompare::Lt,
        "$lte" => KvCompare::Lte,
        _ => return Err(StoreError::Invalid { field: "kv filter", reason: format!("{name:?} is not a comparison") }),
    })
}

fn compares(how: KvCompare, member: &Value, value: &Value) -> bool {
    match how {
        KvCompare::Eq => same(member, value),
        KvCompare::Ne => !same(member, value),
        KvCompare::Gt => order(member, value).is_some_and(Ordering::is_gt),
        KvCompare::Gte => order(member, value).is_some_and(Ordering::is_ge),
        KvCompare::Lt => order(member, value).is_some_and(Ordering::is_lt),
        KvCompare::Lte => order(member, value).is_some_and(Ordering::is_le),
    }
}

/// Numbers are equal by value, of any kind; a truth value is 0 or 1, as in Python and in SQLite.
fn same(a: &Value, b: &Value) -> bool {
    a == b || matches!((number(a), number(b)), (Some(_), Some(_))) && order(a, b) == Some(Ordering::Equal)
}

fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Str(a), Value::Str(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::UInt(a), Value::UInt(b)) => Some(a.cmp(b)),
        // A number that needs 64 unsigned bits is above every signed one.
        (Value::Int(_), Value::UInt(_)) => Some(Ordering::Less),
        (Value::UInt(_), Value::Int(_)) => Some(Ordering::Greater),
        (Value::Str(text), b) => leading_number(text).partial_cmp(&number(b)?),
        _ => number(a)?.partial_cmp(&number(b)?),
    }
}

/// Returns the number that a text begins with, 0 if it begins with none, as SQLite converts a text to a number.
fn leading_number(text: &str) -> f64 {
    let text = text.trim_ascii_start();
    let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    // A double needs fewer digits.
    let length = text.bytes().take(400).take_while(is_of_number).count();
    (1..=length).rev().find_map(|end| text[..end].parse().ok()).unwrap_or(0.0)
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(n) => Some(*n as f64),
        Value::UInt(n) => Some(*n as f64),
        Value::Float(n) => Some(*n),
        Value::Bool(is_true) => Some(f64::from(u8::from(*is_true))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn holds(filter: serde_json::Value, member: serde_json::Value) -> bool {
        Test::parse(Value::from(filter)).unwrap().holds(Some(&Value::from(member)))
    }

    #[test]
    fn values_equal_and_compare_by_what_they_say() {
        assert!(holds(json!(1), json!(1.0)) && holds(json!(1), json!(true)) && !holds(json!(1), json!("1")));
        assert!(
            holds(json!(false), json!(0.0)) && !holds(json!(true), json!(2)) && !holds(json!({"$ne": 1}), json!(true))
        );
        assert!(holds(json!({"$gt": 3}), json!(3.5)) && !holds(json!({"$gt": 3}), json!(3)));
        assert!(holds(json!({"$gte": 2, "$lt": 4}), json!(3)) && !holds(json!({"$gte": 2, "$lt": 4}), json!(4)));
        assert!(holds(json!({"$lte": "b"}), json!("a")) && !holds(json!({"$lte": "b"}), json!(1)));
        assert!(holds(json!({"$ne": 1}), json!(null)) && holds(json!({"$eq": null}), json!(null)));
        assert!(!holds(json!({"$lt": 1}), json!(null)) && !holds(json!({"$gt": 1}), json!(null)));
        assert!(holds(json!({"$gt": u64::MAX - 1}), json!(u64::MAX)) && holds(json!({"$lt": u64::MAX}), json!(-1)));
    }

    #[test]
    fn a_text_is_compared_with_a_number_by_the_number_it_begins_with() {
        for (text, number) in [("10", 10.0), (" -2.5e1x", -25.0), ("abc", 0.0), ("", 0.0), (".5.6", 0.5), ("+-1", 0.0)]
        {
            assert_eq!(leading_number(text), number, "{text:?}");
        }
        assert!(holds(json!({"$gt": 9}), json!("10")) && holds(json!({"$lt": 1}), json!("abc")));
        assert!(!holds(json!({"$eq": 10}), json!("10")) && holds(json!({"$ne": 10}), json!("10")));
        assert_eq!(leading_number(&"-".repeat(70_000)), 0.0);
    }

    #[test]
    fn objects_may_have_more_members_and_lists_not_more_items() {
        assert!(holds(json!({"a": {"b": 1}}), json!({"a": {"b": 1, "c": 2}, "d": 3})));
        assert!(holds(json!({"a": {"$gt": 0}}), json!({"a": 1})) && holds(json!({"none": null}), json!({})));
        assert!(!holds(json!({"a": 1}), json!([1])) && !holds(json!([1]), json!([1, 2])));
        assert!(holds(json!([1, {"$ne": 1}]), json!([1, 2])));
        let error = Test::parse(Value::from(json!({"$in": [1]}))).unwrap_err();
        assert!(matches!(error, StoreError::Invalid { field: "kv filter", .. }), "{error}");
    }
}
