//! Makes a report of the facts of all files: distinctive terms, repeated paragraphs, broken links.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::text::Facts;
use crate::output::{count, cut, grouped};

/// The number of terms of each file in the analysis; a report takes the first of them.
const TERMS_KEPT: usize = 24;
/// The number of findings of a kind that a report lists.
const LISTED_MAX: usize = 20;

/// The findings about a folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Analysis {
    pub(crate) read: usize,
    pub(crate) words: usize,
    pub(crate) headings: usize,
    pub(crate) links: usize,
    pub(crate) files: Vec<Telling>,
    pub(crate) repeated: Vec<Repeated>,
    pub(crate) broken: Vec<Broken>,
    pub(crate) skipped: Vec<Skipped>,
}

/// The distinctive terms of a file, the most distinctive first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Telling {
    pub(crate) path: String,
    pub(crate) words: usize,
    pub(crate) terms: Vec<String>,
}

/// A paragraph of several files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Repeated {
    pub(crate) begins: String,
    pub(crate) paths: Vec<String>,
}

/// A link to a file that does not exist.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Broken {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) target: String,
}

/// A file that was not read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Skipped {
    pub(crate) path: String,
    pub(crate) reason: String,
}

/// Compares the files of a folder.
pub(crate) fn analyse<'a>(notes: impl Iterator<Item = &'a Facts>) -> Analysis {
    let (mut all, mut skipped) = (Vec::new(), Vec::new());
    for facts in notes {
        match &facts.skipped {
            None => all.push(facts),
            Some(reason) => skipped.push(Skipped { path: facts.path.clone(), reason: reason.clone() }),
        }
    }
    let links = || all.iter().flat_map(|facts| facts.links.iter().map(|link| (&facts.path, link)));
    let broken = links().filter(|(_, link)| link.broken).map(|(path, link)| Broken {
        path: path.clone(),
        line: link.line,
        target: link.target.clone(),
    });
    Analysis {
        read: all.len(),
        words: all.iter().map(|facts| facts.words).sum(),
        headings: all.iter().map(|facts| facts.headings.len()).sum(),
        links: links().count(),
        files: telling(&all),
        repeated: repeated(&all),
        broken: broken.collect(),
        skipped,
    }
}

/// Weighs each term by how often it is in the file and how few files have it (TF-IDF).
fn telling(all: &[&Facts]) -> Vec<Telling> {
    let mut files_with: HashMap<&str, u32> = HashMap::new();
    for (term, _) in all.iter().flat_map(|facts| &facts.terms) {
        *files_with.entry(term).or_default() += 1;
    }
    let weigh = |facts: &&Facts| {
        let total = f64::from(facts.terms.iter().map(|(_, n)| n).sum::<u32>().max(1));
        let weight = |term: &str, n: u32| {
            let rare = (1.0 + all.len() as f64) / f64::from(files_with.get(term).copied().unwrap_or(1));
            f64::from(n) / total * rare.ln()
        };
        let mut weighed: Vec<(f64, &str)> = facts.terms.iter().map(|(term, n)| (weight(term, *n), &**term)).collect();
        weighed.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let terms = weighed.into_iter().take(TERMS_KEPT).map(|(_, term)| term.to_owned()).collect();
        Telling { path: facts.path.clone(), words: facts.words, terms }
    };
    all.iter().map(weigh).collect()
}

fn repeated(all: &[&Facts]) -> Vec<Repeated> {
    let mut found: BTreeMap<&str, (&str, BTreeSet<&str>)> = BTreeMap::new();
    for facts in all {
        for paragraph in &facts.paragraphs {
            let entry = found.entry(&paragraph.key).or_insert_with(|| (&paragraph.begins, BTreeSet::new()));
            entry.1.insert(&facts.path);
        }
    }
    let several = found.into_values().filter(|(_, paths)| paths.len() > 1).map(|(begins, paths)| Repeated {
        begins: begins.to_owned(),
        paths: paths.into_iter().map(str::to_owned).collect(),
    });
    let mut several: Vec<Repeated> = several.collect();
    several.sort_by(|a, b| (&a.paths, &a.begins).cmp(&(&b.paths, &b.begins)));
    several
}

impl Analysis {
    /// Returns the figures that need attention.
    pub(crate) fn findings(&self) -> String {
        let skipped = match self.skipped.len() {
            0 => String::new(),
            n => format!(", {} not read", count(n, "file")),
        };
        let broken = count(self.broken.len(), "broken link");
        format!("{broken}, {}{skipped}", count(self.repeated.len(), "repeated paragraph"))
    }

    /// Returns the folder in one sentence.
    pub(crate) fn summary(&self) -> String {
        let (files, words) = (count(self.read, "file"), grouped(self.words as u64));
        format!("{files} with {words} words and {}; {}", count(self.links, "link"), self.findings())
    }
}

/// Writes the report.
pub(crate) fn draft(folder: &str, analysis: &Analysis, top_terms: usize) -> String {
    let mut text = format!("# What is in {folder}\n\n{}.\n", analysis.summary());
    text.push_str("\n## Most telling terms\n\n");
    for file in &analysis.files {
        let terms: Vec<&str> = file.terms.iter().take(top_terms).map(String::as_str).collect();
        let terms = if terms.is_empty() { "(no terms)".to_owned() } else { terms.join(", ") };
        _ = writeln!(text, "- {} ({} words): {terms}", file.path, grouped(file.words as u64));
    }
    let broken = analysis.broken.iter().map(|link| format!("{}:{} -> {}", link.path, link.line, link.target));
    section(&mut text, "Links that lead nowhere", broken);
    let repeated = analysis.repeated.iter();
    let repeated = repeated.map(|one| format!("\"{}...\" in {}", cut(&one.begins, 60), one.paths.join(", ")));
    section(&mut text, "Paragraphs in several files", repeated);
    let skipped = analysis.skipped.iter().map(|file| format!("{}: {}", file.path, file.reason));
    section(&mut text, "Not read", skipped);
    text
}

fn section(text: &mut String, title: &str, lines: impl ExactSizeIterator<Item = String>) {
    let total = lines.len();
    if total == 0 {
        return;
    }
    _ = writeln!(text, "\n## {title}\n");
    for line in lines.take(LISTED_MAX) {
        _ = writeln!(text, "- {line}");
    }
    if total > LISTED_MAX {
        _ = writeln!(text, "- and {} more", total - LISTED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::text::{facts, skipped};
    use super::*;

    #[test]
    fn what_only_one_file_says_is_telling() {
        let shared = "The same sentence stands in both of these small files here.";
        let one =
            facts("one.md", format!("# One\n\nboats store boats store store\n\n{shared}\n").as_bytes(), Path::new("/"));
        let two = facts("two.md", format!("trains store trains [x](gone.md)\n\n{shared}\n").as_bytes(), Path::new("/"));
        let junk = skipped("x.txt", "it is no text");
        let analysis = analyse([&one, &two, &junk].into_iter());
        assert_eq!(analysis.files[0].terms[0], "boats");
        assert_eq!(analysis.files[1].terms[0], "trains");
        assert_eq!(analysis.repeated[0].paths, ["one.md", "two.md"]);
        assert_eq!(
            analysis.summary(),
            "2 files with 33 words and 1 link; 1 broken link, 1 repeated paragraph, 1 file not read"
        );
        let report = draft("notes", &analysis, 1);
        assert!(report.starts_with("# What is in notes\n\n2 files"), "{report}");
        assert!(report.contains("- one.md (18 words): boats\n"), "{report}");
        assert!(report.contains("- two.md:1 -> gone.md\n") && report.contains("- x.txt: it is no text\n"), "{report}");
        assert_eq!(analyse([].into_iter()), Analysis::default());
    }
}
