//! The cache takes away what has expired.

use super::*;

#[test]
fn a_put_into_the_cache_takes_what_has_expired_away() {
    let at = |second: i64| Timestamp::from_micros(second * 1_000_000);
    let tables = MemoryTables::default();
    let put = |key: &str, now: i64, expires_at: Option<i64>| {
        let value = Encoded { codec: crate::base::Codec::MsgPack, bytes: vec![0x80] };
        let (key, expires_at) = (CacheKey::new(["a"], key), expires_at.map(at));
        tables.submit_cache(vec![CacheChange::Put { key, value, now: at(now), expires_at }]).wait().unwrap();
        tables.cache.read().keys().map(|key| key.key.clone()).collect::<Vec<_>>().join(" ")
    };
    put("one", 1, Some(5));
    put("two", 1, Some(6));
    assert_eq!(put("stays", 4, None), "one stays two");
    assert_eq!(put("more", 5, None), "more stays two", "one ends at its timestamp");
    assert_eq!(put("two", 5, None), "more stays two");
}
