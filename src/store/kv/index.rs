//! Search by meaning: the port to a model that embeds texts, the indexed fields, and the ranking of entries.
//!
//! Every stored vector is compared, so a search is exact. *Absent:* a model. The library brings none, and without an
//! index no vector is made or read.

use std::fmt;
use std::sync::Arc;

use crate::base::{Timestamp, Value};
use crate::limits::EMBEDDING_DIMS_MAX;
use crate::store::error::StoreError;
use crate::store::side_tables::KvVector;

use super::path::FieldPath;

/// An error of an [`Embedder`].
pub type EmbedderError = Box<dyn std::error::Error + Send + Sync>;

/// A model that makes vectors of texts: the nearer the meaning of two texts, the greater the cosine of their vectors.
///
/// The calls block; a program that awaits its model puts and searches on a thread where that may block.
#[doc(alias = "Embeddings")]
pub trait Embedder: Send + Sync + 'static {
    /// Returns the number of components of each vector.
    fn dims(&self) -> usize;

    /// Embeds texts that are stored, and returns one vector for each, in their order.
    ///
    /// # Errors
    /// Any; the caller gets it as the source of [`StoreError::Embedding`].
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedderError>;

    /// Embeds the text of a search. This implementation embeds it as a stored one.
    ///
    /// # Errors
    /// As [`Embedder::embed`].
    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedderError> {
        Ok(self.embed(&[text])?.pop().unwrap_or_default())
    }
}

/// The index of a key-value memory: a model, and the fields of values that it embeds. Cheap to clone.
#[doc(alias = "IndexConfig")]
#[derive(Clone)]
pub struct KvIndex {
    embedder: Arc<dyn Embedder>,
    fields: Arc<[FieldPath]>,
}

impl KvIndex {
    /// Makes an index of whole values: the text that is embedded is the value as JSON.
    pub fn new(embedder: impl Embedder) -> Self {
        let whole = FieldPath::parse("$").into_iter().collect();
        Self { embedder: Arc::new(embedder), fields: whole }
    }

    /// Sets the fields whose texts are embedded, each with a vector of its own: `$` is the whole value, `a.b` a member,
    /// `a[0]` and `a[-1]` an item, `a[*]` every item, `a.*` every item or member, and `{a,b}` several members. An entry
    /// in which a path selects nothing has no vector for it.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a path that cannot be read.
    pub fn fields(mut self, fields: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, StoreError> {
        self.fields = parse_fields(fields)?.into();
        Ok(self)
    }

    /// Returns the texts of a value that are embedded, each with the path of its field.
    pub(super) fn texts(&self, value: &Value, fields: Option<&[FieldPath]>) -> Vec<(String, String)> {
        let fields = fields.unwrap_or(&self.fields);
        let texts = |field: &FieldPath| {
            let name = field.as_str().to_owned();
            field.texts(value).into_iter().map(move |text| (name.clone(), text)).collect::<Vec<_>>()
        };
        fields.iter().flat_map(texts).collect()
    }

    /// Embeds texts of values.
    pub(super) fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, StoreError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let vectors = self.embedder.embed(texts).map_err(|source| StoreError::Embedding { source })?;
        if vectors.len() != texts.len() {
            return Err(wrong(format!("the embedder returned {} for {} texts", vectors.len(), texts.len())));
        }
        vectors.iter().try_for_each(|vector| self.verify(vector))?;
        Ok(vectors)
    }

    /// Embeds the text of a search.
    pub(super) fn embed_query(&self, text: &str) -> Result<QueryVector, StoreError> {
        let vector = self.embedder.embed_query(text).map_err(|source| StoreError::Embedding { source })?;
        self.verify(&vector)?;
        let length = norm(&vector);
        Ok(QueryVector { vector, norm: length })
    }

    fn verify(&self, vector: &[f32]) -> Result<(), StoreError> {
        let dims = self.embedder.dims();
        if dims == 0 || dims > EMBEDDING_DIMS_MAX {
            return Err(wrong(format!(
                "the embedder has {dims} dimensions, from 1 to {EMBEDDING_DIMS_MAX} are possible"
            )));
        }
        if vector.len() != dims {
            return Err(wrong(format!("it has {} dimensions, the embedder says {dims}", vector.len())));
        }
        match vector.iter().find(|value| !value.is_finite()) {
            Some(value) => Err(wrong(format!("a component is {value}"))),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for KvIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<&str> = self.fields.iter().map(FieldPath::as_str).collect();
        f.debug_struct("KvIndex").field("dims", &self.embedder.dims()).field("fields", &fields).finish_non_exhaustive()
    }
}

/// Parses the paths of fields.
pub(super) fn parse_fields(fields: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Vec<FieldPath>, StoreError> {
    fields.into_iter().map(|field| FieldPath::parse(field.as_ref())).collect()
}

fn wrong(reason: String) -> StoreError {
    StoreError::Invalid { field: "embedding", reason }
}

/// The embedded text of a search.
pub(super) struct QueryVector {
    vector: Vec<f32>,
    norm: f64,
}

impl QueryVector {
    /// Returns the greatest cosine similarity of any of the vectors of an entry; that of a vector of zeros is 0.
    pub(super) fn score(&self, vectors: &[KvVector]) -> Result<f64, StoreError> {
        let mut best = f64::NEG_INFINITY;
        for vector in vectors {
            if vector.values.len() != self.vector.len() {
                let (found, asked) = (vector.values.len(), self.vector.len());
                let reason = format!("an entry was indexed with {found} dimensions, the search has {asked}");
                return Err(StoreError::Invalid { field: "kv search", reason });
            }
            let norms = self.norm * norm(&vector.values);
            let cosine = if norms > 0.0 { dot(&self.vector, &vector.values) / norms } else { 0.0 };
            best = best.max(cosine);
        }
        Ok(best)
    }
}

/// Returns the sum of products, in several sums so that it uses the vector instructions of a processor.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    debug_assert_eq!(a.len(), b.len(), "vectors of one index have one length");
    let mut sums = [0.0_f64; 8];
    let (chunks_a, chunks_b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 =
        chunks_a.remainder().iter().zip(chunks_b.remainder()).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
    for (x, y) in chunks_a.zip(chunks_b) {
        for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
            *sum += f64::from(*x) * f64::from(*y);
        }
    }
    sums.iter().sum::<f64>() + rest
}

fn norm(vector: &[f32]) -> f64 {
    dot(vector, vector).sqrt()
}

/// The rank of an entry: its similarity, then the time of its last put, then its place in the order of first puts; the
/// greatest is the first result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rank {
    pub(super) score: f64,
    pub(super) updated_at: Timestamp,
    pub(super) place: usize,
}

/// The entries with the greatest ranks, at most a number of them.
pub(super) struct Best<T> {
    limit: usize,
    found: Vec<(Rank, T)>,
}

impl<T> Best<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, found: Vec::new() }
    }

    /// Adds an entry. The worst ones are dropped from time to time, so that the cost is logarithmic.
    pub(super) fn push(&mut self, rank: Rank, entry: T) {
        self.found.push((rank, entry));
        if self.found.len() >= self.limit.saturating_mul(2).max(64) {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        self.found.sort_by(|(a, _), (b, _)| {
            b.score.total_cmp(&a.score).then(b.updated_at.cmp(&a.updated_at)).then(b.place.cmp(&a.place))
        });
        self.found.truncate(self.limit);
    }

    /// Returns the entries, the greatest rank first.
    pub(super) fn into_sorted(mut self) -> Vec<(Rank, T)> {
        self.shrink();
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(query: &[f32], vectors: &[&[f32]]) -> f64 {
        let query = QueryVector { vector: query.to_vec(), norm: norm(query) };
        let vectors: Vec<KvVector> = vectors.iter().map(|values| KvVector::new("$", values.to_vec())).collect();
        query.score(&vectors).unwrap()
    }

    #[test]
    fn the_similarity_is_the_cosine_of_the_best_vector() {
        assert!((score(&[1.0, 0.0], &[&[0.0, 3.0], &[2.0, 2.0]]) - 0.5_f64.sqrt()).abs() < 1e-12);
        assert_eq!(score(&[1.0, 0.0], &[&[-5.0, 0.0]]), -1.0);
        assert_eq!(score(&[0.0, 0.0], &[&[1.0, 0.0]]), 0.0);
        assert_eq!(score(&[1.0, 0.0], &[&[0.0, 0.0]]), 0.0);
        let long: Vec<f32> = (0..1_027_i16).map(f32::from).collect();
        assert!((score(&long, &[&long]) - 1.0).abs() < 1e-12);
        let huge = [f32::MAX; 3];
        assert!((score(&huge, &[&huge]) - 1.0).abs() < 1e-12, "sums do not overflow");
    }

    #[test]
    fn only_the_best_entries_are_retained() {
        let mut best = Best::new(3);
        for n in 0..1_000_u16 {
            let score = f64::from(n * 7 % 1_000);
            best.push(Rank { score, updated_at: Timestamp::default(), place: usize::from(n) }, n);
            assert!(best.found.len() < 64);
        }
        let found = best.into_sorted();
        assert_eq!(found.iter().map(|(rank, _)| rank.score).collect::<Vec<_>>(), [999.0, 998.0, 997.0]);
    }
}
