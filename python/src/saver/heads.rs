//! The caches of a saver: the newest checkpoint of each namespace, and items by their bytes.
//!
//! Invariants: both are bounded; a lock is held while a table is changed, and no code of Python runs meanwhile: what is
//! removed is dropped by the caller. *Absent:* reading and writing.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use annals::base::Map;
use annals_langgraph::{SaverVersion, SeenVersions, Typed, UpdatedChannels};
use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

use super::items::PrototypeList;
use super::prototype::Prototype;

/// Items of the lists of all cached heads together.
const HEAD_ITEMS_MAX: usize = 1 << 18;
/// Cached heads.
const HEADS_MAX: usize = 256;
/// Bytes of the items in each of the two generations of the cache of items.
const ITEM_BYTES_MAX: usize = 32 << 20;

/// The place of a head: thread and namespace.
pub(crate) type HeadPlace = (String, String);

/// A checkpoint with its decoded values.
pub(crate) struct Head {
    pub(crate) id: String,
    /// The number of the serializer that decoded the values.
    pub(crate) serializer: u64,
    pub(crate) v: Option<i64>,
    pub(crate) ts: Option<String>,
    pub(crate) versions: Vec<(String, SaverVersion)>,
    pub(crate) seen: Vec<(String, SeenVersions)>,
    pub(crate) updated: UpdatedChannels,
    pub(crate) extra: Vec<(String, Typed)>,
    pub(crate) metadata: Map,
    pub(crate) parent: Option<String>,
    pub(crate) values: Vec<(String, Arc<HeadValue>)>,
}

/// The value of a channel.
pub(crate) enum HeadValue {
    /// A value that is stored as one, with its prototype once it was asked for.
    One(Typed, OnceLock<Prototype>),
    /// A list that is stored item by item.
    Items(PrototypeList),
}

impl Head {
    pub(crate) fn value(&self, channel: &str) -> Option<&Arc<HeadValue>> {
        self.values.iter().find(|(name, _)| name == channel).map(|(_, value)| value)
    }

    pub(crate) fn version(&self, channel: &str) -> Option<&SaverVersion> {
        self.versions.iter().find(|(name, _)| name == channel).map(|(_, version)| version)
    }

    fn items(&self) -> usize {
        let count = |value: &Arc<HeadValue>| match &**value {
            HeadValue::Items(items) => items.len(),
            HeadValue::One(..) => 1,
        };
        self.values.iter().map(|(_, value)| count(value)).sum()
    }
}

/// The newest checkpoints, the least recently used one first to go.
#[derive(Default)]
pub(crate) struct Heads(Mutex<HeadTable>);

#[derive(Default)]
struct HeadTable {
    heads: HashMap<HeadPlace, (u64, Arc<Head>)>,
    items: usize,
    uses: u64,
}

impl Heads {
    /// Returns the head of a place that a serializer decoded.
    pub(crate) fn get(&self, place: &HeadPlace, serializer: u64) -> Option<Arc<Head>> {
        let mut table = self.0.lock();
        table.uses += 1;
        let uses = table.uses;
        let (used, head) = table.heads.get_mut(place)?;
        *used = uses;
        (head.serializer == serializer).then(|| Arc::clone(head))
    }

    /// Caches a head. Returns the heads that it displaces, which the caller drops.
    #[must_use]
    pub(crate) fn insert(&self, place: HeadPlace, head: Arc<Head>) -> Vec<Arc<Head>> {
        let mut table = self.0.lock();
        table.uses += 1;
        table.items += head.items();
        let uses = table.uses;
        let mut displaced: Vec<Arc<Head>> =
            table.heads.insert(place, (uses, head)).map(|(_, old)| old).into_iter().collect();
        table.items -= displaced.iter().map(|old| old.items()).sum::<usize>();
        while table.heads.len() > HEADS_MAX || (table.items > HEAD_ITEMS_MAX && table.heads.len() > 1) {
            let oldest = table.heads.iter().min_by_key(|(_, (used, _))| *used).map(|(place, _)| place.clone());
            let Some((_, old)) = oldest.and_then(|place| table.heads.remove(&place)) else { break };
            table.items -= old.items();
            displaced.push(old);
        }
        displaced
    }

    /// Forgets a place. Returns its head, which the caller drops.
    #[must_use]
    pub(crate) fn remove(&self, place: &HeadPlace) -> Option<Arc<Head>> {
        let mut table = self.0.lock();
        let (_, old) = table.heads.remove(place)?;
        table.items -= old.items();
        Some(old)
    }

    /// Forgets everything. Returns the heads, which the caller drops.
    #[must_use]
    pub(crate) fn clear(&self) -> Vec<Arc<Head>> {
        let mut table = self.0.lock();
        table.items = 0;
        table.heads.drain().map(|(_, (_, head))| head).collect()
    }
}

/// Decoded items by their bytes, in two generations: the older one goes when the younger one is full.
#[derive(Default)]
pub(crate) struct ItemCache(Mutex<ItemTable>);

type ItemMap = HashMap<Vec<u8>, Arc<Prototype>, Xxh3DefaultBuilder>;

#[derive(Default)]
struct ItemTable {
    young: ItemMap,
    old: ItemMap,
    young_bytes: usize,
}

impl ItemCache {
    /// Returns the prototypes of items; `None` where there is none.
    pub(crate) fn get<'a>(&self, items: impl Iterator<Item = &'a Typed>) -> Vec<Option<Arc<Prototype>>> {
        let table = self.0.lock();
        let find = |item: &Typed| table.young.get(&item.bytes).or_else(|| table.old.get(&item.bytes)).cloned();
        items.map(find).collect()
    }

    /// Caches prototypes. Returns those that they displace, which the caller drops.
    #[must_use]
    pub(crate) fn insert(&self, items: Vec<(Vec<u8>, Arc<Prototype>)>) -> Vec<ItemMap> {
        let mut table = self.0.lock();
        let mut displaced = Vec::new();
        let mut replaced = ItemMap::default();
        for (bytes, prototype) in items {
            if table.young_bytes > ITEM_BYTES_MAX {
                let young = std::mem::take(&mut table.young);
                displaced.push(std::mem::replace(&mut table.old, young));
                table.young_bytes = 0;
            }
            table.young_bytes += bytes.len() + size_of::<Prototype>();
            if let Some(old) = table.young.insert(bytes.clone(), prototype) {
                replaced.insert(bytes, old);
            }
        }
        displaced.push(replaced);
        displaced
    }
}
