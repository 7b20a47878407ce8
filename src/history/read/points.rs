//! Points: checkpoints that are named by a text, such as `trip@1f0c~2` or `trip@{yesterday}`.
//!
//! [`Store::point`] documents the grammar. [`Thread::at`] reads the same without the thread, [`Store::range`] reads two
//! points. *Absent:* the names of branches that hold a tilde or begin with a brace.
//!
//! Invariant: a text with a whole thread id names the same checkpoint however the ids of other threads look, because a
//! thread id is either quoted or the longest beginning of the text that is a thread of the store. The beginning of an
//! id stands for its thread only if the text holds no whole id.

use std::borrow::Cow;
use std::time::Duration;

use crate::base::{CheckpointId, ThreadId, Timestamp};
use crate::limits::{POINT_BYTES_MAX, POINT_PAGE_ROWS};
use crate::store::log::{CheckpointQuery, LogExt, LogReads};
use crate::store::record::CheckpointRecord;
use crate::store::{CheckpointRef, Store, StoreError};

use super::snapshot::Snapshot;
use crate::history::thread::Thread;

/// The fewest characters of the beginning of a thread id, as of a checkpoint id.
const THREAD_CHARS_MIN: usize = 4;
/// The threads that an ambiguous beginning names.
const THREADS_NAMED: usize = 5;

/// The checkpoint at which a point begins, before it goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PointStart<'t> {
    Head,
    /// The name of a branch, an id, or the beginning of one.
    Named(&'t str),
    At(Timestamp),
    Ago(Duration),
    Step(i64),
}

/// A point of a thread: a start, and the number of checkpoints to go back from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PointText<'t> {
    start: PointStart<'t>,
    back: u64,
}

/// Reads the text of a point; an error names the byte of the whole text.
struct PointReader<'t> {
    whole: &'t str,
    /// The byte at which the rest begins.
    at: usize,
}

impl<'t> PointReader<'t> {
    fn rest(&self) -> &'t str {
        &self.whole[self.at..]
    }

    fn expected(&self, at: usize, expected: &'static str) -> StoreError {
        debug_assert!(at <= self.whole.len(), "the place is in the text");
        StoreError::InvalidPoint { text: self.whole.chars().take(256).collect(), at, expected }
    }

    fn skip(&mut self, mark: char) -> bool {
        let found = self.rest().starts_with(mark);
        self.at += if found { mark.len_utf8() } else { 0 };
        found
    }

    fn point(mut self) -> Result<PointText<'t>, StoreError> {
        self.skip('@');
        // The head may be named by a mark of its own.
        if self.rest() == "@" || self.rest().starts_with("@~") {
            self.skip('@');
        }
        let start = if self.skip('{') { self.braces()? } else { self.name() };
        let mut back = 0_u64;
        while self.skip('~') {
            let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
            let number = match &self.rest()[..digits] {
                "" => 1,
                digits => digits.parse().map_err(|_| self.expected(self.at, "a number below 2^64"))?,
            };
            back = back.saturating_add(number);
            self.at += digits;
        }
        if self.rest().is_empty() {
            Ok(PointText { start, back })
        } else {
            Err(self.expected(self.at, "~ and a number, or the end"))
        }
    }

    fn name(&mut self) -> PointStart<'t> {
        let name = self.rest().split('~').next().unwrap_or_default();
        self.at += name.len();
        if name.is_empty() { PointStart::Head } else { PointStart::Named(name) }
    }

    fn braces(&mut self) -> Result<PointStart<'t>, StoreError> {
        let begin = self.at;
        let Some((inside, _)) = self.rest().split_once('}') else {
            return Err(self.expected(self.whole.len(), "a closing brace"));
        };
        self.at += inside.len() + 1;
        if inside == "yesterday" {
            return Ok(PointStart::Ago(Duration::from_secs(86_400)));
        }
        if let Some(step) = inside.strip_prefix("step:") {
            let number = step.parse().map(PointStart::Step);
            return number.map_err(|_| self.expected(begin + "step:".len(), "the number of a step"));
        }
        // A date begins with four digits and a hyphen, a duration with digits and a unit.
        if inside.as_bytes().get(4) == Some(&b'-') {
            let timestamp = inside.parse().map(PointStart::At);
            return timestamp
                .map_err(|error: crate::base::TimestampError| self.expected(begin + error.at, error.expected));
        }
        self.duration(inside, begin).map(PointStart::Ago)
    }

    /// Reads a duration such as `1h30m`.
    fn duration(&self, inside: &str, begin: usize) -> Result<Duration, StoreError> {
        const FORMS: &str = "a duration (90s, 1h30m, 2d), a timestamp, yesterday or step:N";
        let (mut rest, mut sum) = (inside, 0_u64);
        while !rest.is_empty() {
            let at = begin + inside.len() - rest.len();
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let number: u64 = rest[..digits].parse().map_err(|_| self.expected(at, FORMS))?;
            let unit = rest[digits..].split(|c: char| c.is_ascii_digit()).next().unwrap_or_default();
            let millis: u64 = match unit {
                "ms" => 1,
                "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                "w" => 7 * 86_400_000,
                _ => return Err(self.expected(at + digits, "a unit: ms, s, m, h, d or w")),
            };
            sum = sum.saturating_add(number.saturating_mul(millis));
            rest = &rest[digits + unit.len()..];
        }
        if inside.is_empty() { Err(self.expected(begin, FORMS)) } else { Ok(Duration::from_millis(sum)) }
    }
}

impl Store {
    /// Returns the checkpoint that a text names: a thread, and a point of it.
    ///
    /// | text | checkpoint |
    /// | --- | --- |
    /// | `trip`, `trip@` | the head of the thread `trip` |
    /// | `trip@by-train` | the last one of the branch `by-train` |
    /// | `trip@1f0c9a` | the one whose id begins so; the whole id is a beginning too, hyphens are optional |
    /// | `trip~3`, `trip@1f0c9a~3` | three checkpoints before; `~` alone is `~1` |
    /// | `trip@{2h}`, `trip@{1h30m}` | the newest one that was made until that long ago; units: `ms`, `s`, `m`, `h`,
    /// `d`, `w` |
    /// | `trip@{yesterday}` | the same as `trip@{24h}` |
    /// | `trip@{2026-11-21T01:16:57+01:00}` | the newest one that was made until a timestamp of RFC 3339; a date is its
    /// midnight in UTC |
    /// | `trip@{step:12}` | the newest one of the head's lineage with that step |
    /// | `"me@home"@{2h}` | a thread id in double quotes, in which `\"` and `\\` stand for `"` and `\` |
    ///
    /// Without quotes, the thread is the longest beginning of the text that is a thread of the store and after which
    /// the text ends or goes on with `@` or `~`: an id that holds these needs no quotes unless another thread could
    /// be meant. If there is none, four characters or more with which one thread id alone begins stand for it. The time
    /// of a checkpoint is the one in its id, by which checkpoints are ordered.
    ///
    /// # Errors
    /// [`StoreError::InvalidPoint`] with the place and the expected element; [`StoreError::ThreadNotFound`],
    /// [`StoreError::CheckpointNotFound`], [`StoreError::Ambiguous`], [`StoreError::AmbiguousThread`];
    /// [`StoreError::Id`] if the id of the thread is not
    /// valid; [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # #[derive(State, Clone, Default)]
    /// # struct Plan { city: String }
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let trip = store.thread("trip")?;
    /// for city in ["Bern", "Oslo", "Rome"] {
    ///     trip.update(Plan::update().city(city))?;
    /// }
    /// let city = |point: &str| -> Result<String> { Ok(store.point(point)?.state::<Plan>()?.city) };
    /// assert_eq!(city("trip")?, "Rome");
    /// assert_eq!(city("trip~2")?, "Bern");
    /// assert_eq!(city("trip@{step:1}")?, "Oslo");
    /// assert_eq!(city("trip@{0s}~1")?, "Oslo");
    /// assert!(city("trip@{yesterday}").is_err(), "it did not exist yet");
    /// # Ok(())
    /// # }
    /// ```
    pub fn point(&self, text: impl AsRef<str>) -> Result<Snapshot, StoreError> {
        let text = text.as_ref();
        let (thread, at) = self.thread_of_point(text, text)?;
        thread.at_text(PointReader { whole: text, at }.point()?, &text[at..])
    }

    /// Returns two checkpoints that a text names as `A..B`, each a [point](Self::point). A `B` that begins with `@` or
    /// `~`, or is empty, is a point of the thread of `A`; a thread id that begins so is quoted there.
    ///
    /// If thread ids hold two dots, the last place is taken at which both sides begin with a thread of the store.
    ///
    /// # Errors
    /// As [`Store::point`]; [`StoreError::InvalidPoint`] if the text does not hold two dots.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # #[derive(State, Clone, Default)]
    /// # struct Plan { city: String }
    /// # fn main() -> Result<()> {
    /// # let store = Store::memory();
    /// # let trip = store.thread("trip")?;
    /// # for city in ["Bern", "Oslo", "Rome"] {
    /// #     trip.update(Plan::update().city(city))?;
    /// # }
    /// let (before, after) = store.range("trip~2..~1")?;
    /// assert_eq!((before, after), (trip.at("~2")?, trip.at("~1")?));
    /// assert_eq!(store.range("trip~1..")?.1, trip.at("@")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range(&self, text: impl AsRef<str>) -> Result<(Snapshot, Snapshot), StoreError> {
        let text = text.as_ref();
        let mut first_error = None;
        for (dots, _) in text.rmatch_indices("..") {
            let (before, after) = (&text[..dots], &text[dots + 2..]);
            match self.thread_of_point(before, text).and_then(|first| Ok((first, self.range_end(after, text)?))) {
                Ok(((thread, at), end)) => {
                    let (other, from) = end.unwrap_or((thread.clone(), 0));
                    let first = PointReader { whole: before, at }.point()?;
                    let second = PointReader { whole: text, at: dots + 2 + from }.point()?;
                    return Ok((thread.at_text(first, &before[at..])?, other.at_text(second, &after[from..])?));
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let no_dots = || PointReader { whole: text, at: 0 }.expected(text.len(), "two points, as A..B");
        Err(first_error.unwrap_or_else(no_dots))
    }

    /// Returns the thread of the second point of a range and the byte at which its point begins; `None` if it is that
    /// of the first.
    fn range_end(&self, text: &str, whole: &str) -> Result<Option<(Thread, usize)>, StoreError> {
        let is_same = text.is_empty() || text.starts_with(['@', '~']);
        if is_same { Ok(None) } else { self.thread_of_point(text, whole).map(Some) }
    }

    /// Returns the thread that a point begins with, and the byte after it.
    fn thread_of_point(&self, text: &str, whole: &str) -> Result<(Thread, usize), StoreError> {
        if whole.len() > POINT_BYTES_MAX {
            let reason = format!("it has {} bytes, the limit is {POINT_BYTES_MAX}", whole.len());
            return Err(StoreError::Invalid { field: "point", reason });
        }
        if text.starts_with('"') {
            let (id, end) =
                quoted(text).map_err(|(at, expected)| PointReader { whole, at: 0 }.expected(at, expected))?;
            let thread = self.thread(id)?;
            return if self.is_stored(&thread)? { Ok((thread, end)) } else { Err(not_found(&thread)) };
        }
        let marks = text.char_indices().rev().filter(|(_, c)| matches!(c, '@' | '~')).map(|(at, _)| at);
        for end in std::iter::once(text.len()).chain(marks) {
            // A text that is not valid as an id is not a thread.
            if let Ok(thread) = self.thread(&text[..end])
                && self.is_stored(&thread)?
            {
                return Ok((thread, end));
            }
        }
        let marks = text.char_indices().rev().filter(|(_, c)| matches!(c, '@' | '~')).map(|(at, _)| at);
        for end in std::iter::once(text.len()).chain(marks) {
            if let Some(thread) = self.begins_thread(&text[..end])? {
                return Ok((thread, end));
            }
        }
        let name = text.rsplit_once('@').map_or(text, |(name, _)| name);
        Err(StoreError::ThreadNotFound { id: ThreadId::new(name)? })
    }

    /// Returns the thread with an id, or the only one whose id begins with a text of at least four characters.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`]; [`StoreError::AmbiguousThread`] if several ids begin so; [`StoreError::Id`] if
    /// the text is not valid as an id; [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// for id in ["codex:019c8bfe", "codex:019d0001"] {
    ///     store.thread(id)?.set("n", 1)?;
    /// }
    /// assert_eq!(store.find_thread("codex:019c")?.id().as_str(), "codex:019c8bfe");
    /// assert!(store.find_thread("codex:019").unwrap_err().to_string().contains("several"));
    /// assert_eq!(store.point("codex:019d@")?.point().thread.as_str(), "codex:019d0001");
    /// # Ok(())
    /// # }
    /// ```
    pub fn find_thread(&self, text: impl AsRef<str>) -> Result<Thread, StoreError> {
        let thread = self.thread(text.as_ref())?;
        if self.is_stored(&thread)? {
            return Ok(thread);
        }
        self.begins_thread(text.as_ref())?.ok_or_else(|| not_found(&thread))
    }

    /// Returns the only thread whose id begins with a text.
    fn begins_thread(&self, text: &str) -> Result<Option<Thread>, StoreError> {
        let Ok(after) = ThreadId::new(text) else { return Ok(None) };
        if text.chars().count() < THREAD_CHARS_MIN {
            return Ok(None);
        }
        // Ids with the same beginning are neighbours.
        let beside = self.threads_after(Some(&after), THREADS_NAMED)?.into_iter();
        let matches = beside.map(|record| record.id).take_while(|id| id.as_str().starts_with(text));
        let matches: Vec<ThreadId> = matches.collect();
        match &matches[..] {
            [] => Ok(None),
            [id] => self.thread(id.as_str()).map(Some),
            _ => Err(StoreError::AmbiguousThread { prefix: text.to_owned(), matches }),
        }
    }

    fn is_stored(&self, thread: &Thread) -> Result<bool, StoreError> {
        self.flush_abandoned();
        Ok(self.backend().head_id(thread.id(), thread.namespace())?.is_some())
    }
}

fn not_found(thread: &Thread) -> StoreError {
    StoreError::ThreadNotFound { id: thread.id().clone() }
}

/// Reads a quoted id; returns it with the byte after it. An error is a place and the expected element.
fn quoted(text: &str) -> Result<(Cow<'_, str>, usize), (usize, &'static str)> {
    let (mut id, mut from) = (Cow::Borrowed(""), 1);
    let mut marks = text.char_indices().skip(1);
    while let Some((at, mark)) = marks.next() {
        match mark {
            '\\' => {
                let escaped = marks.next().filter(|(_, c)| matches!(c, '"' | '\\'));
                let (next, _) = escaped.ok_or((at + 1, "\" or \\"))?;
                id += &text[from..at];
                from = next;
            }
            '"' => {
                id += &text[from..at];
                let end = at + 1;
                let goes_on = text[end..].is_empty() || text[end..].starts_with(['@', '~']);
                return if goes_on { Ok((id, end)) } else { Err((end, "@, ~ or the end")) };
            }
            _ => {}
        }
    }
    Err((text.len(), "a closing quote"))
}

impl Thread {
    /// Returns a checkpoint of the thread by a point: the name of a branch, an id or the beginning of one, a distance
    /// from the head (`~2`), a time (`{2h}`, `{yesterday}`, `{2026-11-21}`) or a step (`{step:12}`), as
    /// [`Store::point`] documents them. `@` and an empty text are the head.
    ///
    /// # Errors
    /// [`StoreError::InvalidPoint`], [`StoreError::CheckpointNotFound`], [`StoreError::Ambiguous`],
    /// [`StoreError::ThreadNotFound`].
    pub fn at(&self, point: impl std::fmt::Display) -> Result<Snapshot, StoreError> {
        let text = &*point.to_string();
        self.at_text(PointReader { whole: text, at: 0 }.point()?, text)
    }

    /// Returns the checkpoint of a point. `text` is the point, for errors.
    fn at_text(&self, point: PointText<'_>, text: &str) -> Result<Snapshot, StoreError> {
        let none = || StoreError::CheckpointNotFound { thread: self.id().clone(), id: text.to_owned() };
        let head = || self.head()?.ok_or_else(|| not_found(self));
        let start = match point.start {
            PointStart::Head => head()?,
            PointStart::Named(name) => self.named(name)?.ok_or_else(none)?,
            PointStart::At(at) => self.made_until(at)?.ok_or_else(none)?,
            PointStart::Ago(ago) => self.made_until(self.store().now().saturating_sub(ago))?.ok_or_else(none)?,
            PointStart::Step(step) => self.of_step(head()?, step)?.ok_or_else(none)?,
        };
        if point.back == 0 {
            return Ok(start);
        }
        let ordinal = start.record().ordinal.checked_sub(point.back).ok_or_else(none)?;
        let found = self.store().backend().ancestors(start.point(), &[ordinal])?.pop().flatten();
        Snapshot::kept(self.store(), found.ok_or_else(none)?)
    }

    /// Returns the checkpoint that a name stands for: the last one of the branch with that name, or else the only one
    /// whose id begins with it.
    fn named(&self, name: &str) -> Result<Option<Snapshot>, StoreError> {
        if self.namespace().is_root() {
            match self.branch(name) {
                Ok(branch) => return Ok(Some(branch.last)),
                Err(StoreError::BranchNotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // A whole id is looked up: the beginning of one is searched in all namespaces of the thread.
        if let Ok(id) = name.parse::<CheckpointId>() {
            let at = CheckpointRef { thread: self.id().clone(), namespace: self.namespace().clone(), checkpoint: id };
            if let Some(record) = self.store().backend().checkpoint(&at)? {
                return Snapshot::kept(self.store(), record).map(Some);
            }
        }
        let mut found = self.store().backend().checkpoints_by_prefix(self.id(), name, 9)?;
        if !self.namespace().is_root() {
            found.retain(|record| record.point.namespace == *self.namespace());
        }
        if found.len() > 1 {
            let matches = found.iter().map(|record| record.point.checkpoint).collect();
            return Err(StoreError::Ambiguous { prefix: name.to_owned(), matches });
        }
        match found.pop() {
            Some(record) => Snapshot::kept(self.store(), record).map(Some),
            None if self.store().backend().head_id(self.id(), self.namespace())?.is_none() => Err(not_found(self)),
            None => Ok(None),
        }
    }

    /// Returns the newest checkpoint of the namespace whose id was minted until a timestamp.
    fn made_until(&self, at: Timestamp) -> Result<Option<Snapshot>, StoreError> {
        // Ids that are minted in quick succession may be ahead of the clock.
        if at >= self.store().now() {
            return self.head();
        }
        self.store().flush_abandoned();
        let mut query = CheckpointQuery::new(self.id().clone(), self.namespace().clone());
        query.before = Some(CheckpointId::first_at(at.saturating_add(Duration::from_micros(1))));
        query.limit = 1;
        let found = self.store().backend().checkpoints(&query)?.pop();
        Ok(found.map(|record| Snapshot::new(self.store().clone(), record)))
    }

    /// Returns the newest checkpoint of a lineage with a step. Steps mostly go up by one.
    fn of_step(&self, head: Snapshot, step: i64) -> Result<Option<Snapshot>, StoreError> {
        let snapshot = |record: CheckpointRecord| Snapshot::kept(self.store(), record);
        let has_step = |record: &CheckpointRecord| record.step == step;
        let (at, newest) = (head.record().ordinal, head.step());
        let read = |ordinals: &[u64]| self.store().backend().ancestors(head.point(), ordinals);
        let guess = u64::try_from(newest.saturating_sub(step)).ok().and_then(|back| at.checked_sub(back));
        if let Some(guess) = guess {
            // The child tells that no newer checkpoint has the step, as long as steps go up.
            let around = read(&[guess, (guess + 1).min(at)])?;
            if let [Some(found), Some(child)] = &around[..]
                && has_step(found)
                && (guess == at || child.step > step)
            {
                return snapshot(found.clone()).map(Some);
            }
        }
        let mut end = at + 1;
        while end > 0 {
            let first = end.saturating_sub(POINT_PAGE_ROWS);
            let page = read(&(first..end).rev().collect::<Vec<_>>())?;
            if let Some(found) = page.into_iter().flatten().find(has_step) {
                return snapshot(found).map(Some);
            }
            end = first;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<PointText<'_>, (usize, &'static str)> {
        PointReader { whole: text, at: 0 }.point().map_err(|error| match error {
            StoreError::InvalidPoint { at, expected, .. } => (at, expected),
            other => panic!("{other}"),
        })
    }

    #[test]
    fn points_are_read_by_the_grammar() {
        let ago = |seconds: u64| PointStart::Ago(Duration::from_secs(seconds));
        for (text, start, back) in [
            ("", PointStart::Head, 0),
            ("@", PointStart::Head, 0),
            ("~", PointStart::Head, 1),
            ("@~2~", PointStart::Head, 3),
            ("1f0c", PointStart::Named("1f0c"), 0),
            ("@1f0c~12", PointStart::Named("1f0c"), 12),
            ("{2h}", ago(7_200), 0),
            ("@{1w1d1h1m1s}~1", ago(694_861), 1),
            ("{1500ms}", PointStart::Ago(Duration::from_millis(1_500)), 0),
            ("{yesterday}", ago(86_400), 0),
            ("{step:-1}", PointStart::Step(-1), 0),
            ("{1970-01-02}", PointStart::At(Timestamp::from_micros(86_400_000_000)), 0),
        ] {
            assert_eq!(read(text), Ok(PointText { start, back }), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_point_is_refused_with_its_place() {
        let forms = "a duration (90s, 1h30m, 2d), a timestamp, yesterday or step:N";
        for (text, at, expected) in [
            ("~x", 1, "~ and a number, or the end"),
            ("@~1@", 3, "~ and a number, or the end"),
            ("{2h}x", 4, "~ and a number, or the end"),
            ("{2h", 3, "a closing brace"),
            ("{}", 1, forms),
            ("{tomorrow}", 1, forms),
            ("{1h2x}", 4, "a unit: ms, s, m, h, d or w"),
            ("{1h2}", 4, "a unit: ms, s, m, h, d or w"),
            ("@{step:a}", 7, "the number of a step"),
            ("{2026-13-01}", 6, "a month"),
            ("~18446744073709551616", 1, "a number below 2^64"),
        ] {
            assert_eq!(read(text), Err((at, expected)), "{text}");
        }
    }

    #[test]
    fn a_quoted_id_is_read_with_its_escapes() {
        for (text, id, end) in
            [(r#""a""#, "a", 3), (r#""a@b"~1"#, "a@b", 5), (r#""a\"\\b"@"#, "a\"\\b", 8), (r#""{é}..""#, "{é}..", 8)]
        {
            assert_eq!(quoted(text), Ok((id.into(), end)), "{text}");
        }
        assert_eq!(quoted(r#""a"#), Err((2, "a closing quote")));
        assert_eq!(quoted(r#""a\n""#), Err((3, "\" or \\")));
        assert_eq!(quoted(r#""a"b"#), Err((3, "@, ~ or the end")));
    }
}
