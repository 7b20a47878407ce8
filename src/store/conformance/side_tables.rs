//! The tables beside the log: the key-value memory and the cache.

use super::build::*;

/// Returns the tables beside the log.
fn beside(backend: &dyn Log) -> &dyn SideTables {
    backend.side_tables().expect("the backend has tables beside the log")
}

fn space(path: &str) -> KvNamespace {
    let labels = path.split('.').filter(|label| !label.is_empty());
    KvNamespace::from_labels(labels).expect("a namespace")
}

fn value(bytes: impl AsRef<[u8]>) -> Encoded {
    Encoded { codec: Codec::MsgPack, bytes: bytes.as_ref().to_vec() }
}

fn put(path: &str, key: &str, bytes: impl AsRef<[u8]>, now: u64, expires: Option<u64>) -> KvChange {
    let (now, expires_at) = (moment(now), expires.map(moment));
    KvChange::Put { namespace: space(path), key: key.into(), value: value(bytes), now, expires_at }
}

fn vectors(path: &str, key: &str, values: &[&[f32]]) -> KvChange {
    let vectors = values.iter().map(|values| KvVector::new("text", values.to_vec())).collect();
    KvChange::SetVectors { namespace: space(path), key: key.into(), vectors }
}

fn change(backend: &dyn Log, changes: &[KvChange]) {
    beside(backend).commit_kv(changes).expect("changes are made");
}

fn count(backend: &dyn Log, entries: u64) {
    clean(backend);
    assert_eq!(backend.check().expect("a check runs").entries, entries);
}

/// The key-value memory as it must be: the entries in the order in which a visitor sees them, with their vectors and
/// their lifetimes. Those of a namespace lie side by side.
#[derive(Default)]
struct KvMirror(Vec<(KvRecord, Vec<KvVector>, Option<Duration>)>);

fn is_live(entry: &KvRecord, now: Timestamp) -> bool {
    entry.expires_at.is_none_or(|at| at > now)
}

impl KvMirror {
    fn change(&mut self, change: &KvChange) {
        let (namespace, key) = change.place();
        if let KvChange::Put { now, .. } = change {
            self.0.retain(|(entry, ..)| is_live(entry, *now));
        }
        let at = self.0.iter().position(|(entry, ..)| (&entry.namespace, &*entry.key) == (namespace, key));
        match (change, at) {
            (KvChange::Put { value, now, expires_at, .. }, at) => {
                let created_at = at.map_or(*now, |at| self.0[at].0.created_at);
                let mut entry = KvRecord::new(namespace.clone(), key, value.clone(), created_at);
                (entry.updated_at, entry.expires_at) = (*now, *expires_at);
                let last = self.0.iter().rposition(|(of, ..)| of.namespace == *namespace);
                let new = last.map_or(self.0.len(), |last| last + 1);
                self.0.splice(at.map_or(new..new, |at| at..at + 1), [(entry, Vec::new(), None)]);
            }
            (KvChange::SetVectors { vectors, .. }, Some(at)) => self.0[at].1.clone_from(vectors),
            (KvChange::SetLifetime { lifetime, .. }, Some(at)) => self.0[at].2 = Some(*lifetime),
            (KvChange::Prolong { now, .. }, Some(at)) => {
                let (entry, _, lifetime) = &mut self.0[at];
                entry.expires_at = lifetime.map_or(entry.expires_at, |of| Some(now.saturating_add(of)));
            }
            (KvChange::Delete { .. }, Some(at)) => _ = self.0.remove(at),
            (KvChange::DeleteExpired { now, .. }, Some(at)) if !is_live(&self.0[at].0, *now) => _ = self.0.remove(at),
            _ => {}
        }
    }

    /// Compares all that a backend shows at a timestamp.
    fn compare(&self, backend: &dyn Log, now: Timestamp) {
        let tables = beside(backend);
        for under in [None, Some(space("")), Some(space("a")), Some(space("a.x")), Some(space("none"))] {
            let under = under.as_ref();
            let is_in = |namespace: &KvNamespace| under.is_none_or(|under| namespace.is_in(under));
            let live = self.0.iter().filter(|(entry, ..)| is_live(entry, now) && is_in(&entry.namespace));
            let live: Vec<_> = live.cloned().collect();
            let entries = seen(|found| tables.kv_entries(under, now, &mut |entry| see(found, entry.clone())));
            assert!(entries.iter().eq(live.iter().map(|(entry, ..)| entry)), "under {under:?}: {entries:?}");
            let indexed = seen(|found| {
                tables.kv_indexed(under, now, &mut |entry, vectors| see(found, (entry.clone(), vectors.to_vec())))
            });
            let vectors = live.iter().filter(|of| !of.1.is_empty()).map(|of| (of.0.clone(), of.1.clone()));
            assert_eq!(indexed, vectors.collect::<Vec<_>>(), "under {under:?}");
            let found: HashSet<_> =
                tables.kv_namespaces(under, now).expect("namespaces are read").into_iter().collect();
            assert_eq!(found, live.iter().map(|(entry, ..)| entry.namespace.clone()).collect());
        }
        for (entry, ..) in &self.0 {
            let found = tables.kv_entry(&entry.namespace, &entry.key, now).expect("an entry is read");
            assert_eq!(found.as_ref(), Some(entry).filter(|entry| is_live(entry, now)));
        }
        let mut expired: Vec<_> = self.0.iter().map(|(entry, ..)| entry).filter(|entry| !is_live(entry, now)).collect();
        expired.sort_by_key(|entry| entry.expires_at);
        let found = tables.kv_expired(now, 2).expect("entries are read");
        let first = expired.iter().take(2).map(|entry| (entry.namespace.clone(), entry.key.clone()));
        assert_eq!(found, first.collect::<Vec<_>>(), "the earliest first");
        assert_eq!(backend.check().expect("a check runs").entries, self.0.len() as u64);
    }
}

/// Random changes: all answers are compared with a mirror, after each third of them.
pub(super) fn kv_random(backend: &dyn Log) {
    let (mut dice, mut mirror) = (Dice(IdSource::from_seed(5)), KvMirror::default());
    for step in 1..=200 {
        let now = 10 * step;
        let mut pick = |may_expire: bool| {
            let path = ["a", "a.x", "a-b", "", "langgraph", "ab"][dice.below(6) as usize];
            let (namespace, key) = (space(path), ["", "a/b"][dice.below(2) as usize].to_owned());
            // Entries expire at timestamps of their own.
            let expires = Some(now + 10 * (1 + dice.below(9)) + step % 10).filter(|_| may_expire && dice.below(3) > 0);
            match dice.below(9) {
                0..4 => put(path, &key, format!("{now}"), now, expires),
                4 => KvChange::Delete { namespace, key },
                5 => vectors(path, &key, &[&[now as f32, -0.5][..], &[f32::MIN_POSITIVE]][..dice.below(3) as usize]),
                6 => KvChange::SetLifetime { namespace, key, lifetime: Duration::from_micros(900 + now) },
                7 => KvChange::Prolong { namespace, key, now: moment(now) },
                _ => KvChange::DeleteExpired { namespace, key, now: moment(now) },
            }
        };
        let changes = [pick(true), pick(false), pick(false)];
        change(backend, &changes);
        changes.iter().for_each(|change| mirror.change(change));
        let later = [0, 60].into_iter().filter(|_| step.is_multiple_of(3));
        later.for_each(|later| mirror.compare(backend, moment(now + later)));
    }
    clean(backend);
}

/// Values and keys at their limits, and visitors that stop.
pub(super) fn kv_limits(backend: &dyn Log) {
    let long = |bytes| put("a", &"k".repeat(bytes), b"", 1, None);
    let refused = [[long(1), long(KV_KEY_BYTES_MAX + 1)], [long(1), vectors("a", "k", &[&[f32::NAN]])]];
    assert_eq!(refused.map(|of| refusal(beside(backend).commit_kv(&of))), ["kv key", "kv vector"]);
    let mut mirror = KvMirror::default();
    mirror.compare(backend, moment(1));
    let deep = vec!["x"; KV_LABELS_MAX].join(".");
    let foreign = Encoded { codec: Codec::Foreign(3), bytes: vec![0, 255] };
    let (namespace, key) = (space("a"), "foreign".to_owned());
    let foreign = KvChange::Put { namespace, key, value: foreign, now: moment(1), expires_at: None };
    let keys = ["a\0b", "a\0c", "a"].map(|key| put(&deep, key, key, 1, None));
    let large = [long(KV_KEY_BYTES_MAX), foreign, put("a", "large", vec![7; 100_000], 1, None)];
    for changes in [&keys[..], &large] {
        change(backend, changes);
        changes.iter().for_each(|change| mirror.change(change));
    }
    mirror.compare(backend, moment(2));
    let mut seen = 0;
    let mut visit = |_: &KvRecord| {
        seen += 1;
        Ok(seen < 2)
    };
    beside(backend).kv_entries(None, moment(2), &mut visit).expect("entries are read");
    assert_eq!(seen, 2, "a visitor can stop");
    change(backend, &[vectors("a", "large", &[&[1.0]])]);
    let stopped = [
        beside(backend).kv_entries(None, moment(2), &mut |_| Err(StoreError::ReadOnly)),
        beside(backend).kv_indexed(None, moment(2), &mut |_, _| Err(StoreError::ReadOnly)),
    ];
    assert_eq!(stopped.map(refusal), ["of the visitor"; 2]);
    // A put removes a bounded number of expired entries.
    let many = (0..u64::from(KV_EXPIRED_MAX) + 3).map(|n| put("many", &n.to_string(), b"", 20, Some(21)));
    many.for_each(|put| change(backend, &[put]));
    for (now, left) in [(30, 10), (31, 8)] {
        change(backend, &[put("x", &now.to_string(), b"", now, None)]);
        count(backend, left);
    }
}

/// Random changes of the cache, compared with a map.
pub(super) fn cache_random(backend: &dyn Log) {
    let places: [&[&str]; 6] = [&[], &["a"], &["a", "b"], &["a", "b", "c"], &["a", "bb.c"], &["ab"]];
    let key = |n: usize| CacheKey::new(places[n / 2].iter().copied(), ["1", "2"][n % 2]);
    let keys: Vec<CacheKey> = (0..12).map(key).collect();
    let (mut dice, mut held, tables) = (Dice(IdSource::from_seed(6)), BTreeMap::new(), beside(backend));
    for now in 1..=300 {
        let changes = [0; 2].map(|_| {
            let n = dice.below(12) as usize;
            let (namespace, key) = (keys[n].namespace.clone(), keys[n].clone());
            let expires_at = Some(moment(now + 1 + dice.below(9))).filter(|_| dice.below(3) > 0);
            match dice.below(12) {
                0 => CacheChange::Clear { namespace },
                1 => CacheChange::ClearNamespace { namespace },
                _ => CacheChange::Put { key, value: value(format!("{now} {n}")), now: moment(now), expires_at },
            }
        });
        for change in &changes {
            match change {
                CacheChange::Put { key, value, now, expires_at } => {
                    // A put takes expired values away.
                    held.retain(|_, (_, at): &mut (Encoded, Option<Timestamp>)| at.is_none_or(|at| at > *now));
                    held.insert(key.clone(), (value.clone(), *expires_at));
                }
                CacheChange::Clear { namespace } => held.retain(|key, _| !key.namespace.starts_with(namespace)),
                CacheChange::ClearNamespace { namespace } => held.retain(|key, _| key.namespace != *namespace),
            }
        }
        assert_eq!(refusal(tables.submit_cache(changes.to_vec()).wait()), "accepted: ()");
        for at in [moment(now), moment(now + 4)] {
            let live = |key: &CacheKey| held.get(key).filter(|(_, until)| until.is_none_or(|until| until > at));
            let live: Vec<_> = keys.iter().map(|key| live(key).map(|(value, _)| value.clone())).collect();
            assert_eq!(tables.cached(&keys, at).expect("the cache is read"), live, "after {changes:?}");
        }
    }
    count(backend, held.len() as u64);
    let (key, label) = (CacheKey::new(["w"], "3"), "a\0".to_owned());
    let put = CacheChange::Put { key: key.clone(), value: value(b""), now: moment(1), expires_at: None };
    let nul = CacheChange::Clear { namespace: vec![label] };
    assert_eq!(refusal(tables.submit_cache(vec![put, nul]).wait()), "cache label");
    assert_eq!(tables.cached(&[key], moment(1)).expect("the cache is read"), [None], "nothing was written");
}
