//! The key-value memory: ops and steps on it.

use annals::base::{Map as ValueMap, Value};
use annals::store::kv::{KvItem, KvNamespaceQuery};
use annals::store::{Kv, KvQuery, StoreError};
use serde_json::{Map, Value as Json, json};

use crate::program::Failure;
use crate::trace::plain;

/// Returns whether the runner implements an op or step.
pub(crate) fn is_known(what: &str) -> bool {
    matches!(what, "kv_put" | "kv_get" | "kv_search" | "kv_delete" | "kv_list_namespaces")
}

/// Runs an op or a step on its evaluated members, and returns the result of a read.
pub(crate) fn run(kv: &Kv, what: &str, members: &Map<String, Json>) -> Result<Option<Json>, Failure> {
    let member = |name: &str| members.get(name).unwrap_or(&Json::Null);
    let key = || member("key").as_str().unwrap_or_default().to_owned();
    let number = |name: &str| member(name).as_u64().map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let found = match what {
        "kv_put" => {
            let value = Value::from(member("value").clone());
            return kv.put(labels(member("namespace"))?, key(), value).map(|()| None).map_err(failure);
        }
        "kv_delete" => return kv.delete(labels(member("namespace"))?, key()).map(|()| None).map_err(failure),
        "kv_get" => {
            let item = kv.get(labels(member("namespace"))?, key()).map_err(failure)?;
            item.as_ref().map_or(Json::Null, shown)
        }
        "kv_search" => {
            let mut query = KvQuery::new(labels(member("namespace"))?);
            if let Value::Map(filter) = Value::from(member("filter").clone()) {
                query = query.filter_object(ValueMap::from_iter(filter)).map_err(failure)?;
            }
            query = query.limit(number("limit").unwrap_or(10)).offset(number("offset").unwrap_or(0));
            kv.search(query).map_err(failure)?.iter().map(shown).collect()
        }
        _ => {
            let mut query = KvNamespaceQuery::new().prefix(labels(member("prefix"))?).suffix(labels(member("suffix"))?);
            if let Some(depth) = number("max_depth") {
                query = query.max_depth(depth);
            }
            query = query.limit(number("limit").unwrap_or(100)).offset(number("offset").unwrap_or(0));
            json!(kv.list_namespaces(query).map_err(failure)?)
        }
    };
    Ok(Some(found))
}

/// Reads labels. The types of the library exclude labels that are not texts, so the error is made here.
fn labels(json: &Json) -> Result<Vec<String>, Failure> {
    let label = |label: &Json| label.as_str().map(str::to_owned).ok_or_else(|| Failure::of("InvalidNamespaceError"));
    json.as_array().into_iter().flatten().map(label).collect()
}

fn failure(error: StoreError) -> Failure {
    match error {
        StoreError::InvalidNamespace { .. } => Failure::of("InvalidNamespaceError"),
        StoreError::Invalid { .. } => Failure::of("ValueError"),
        error => Failure { class: "StoreError".into(), message: error.to_string() },
    }
}

fn shown(item: &KvItem) -> Json {
    json!({"namespace": item.namespace, "key": item.key, "value": plain(&item.value)})
}
