//! Code as HTML: four classes of words, found line by line. A language that is not known stays plain.
//!
//! *Absent:* grammars. A scanner of lines takes a quote in a comment for a comment, and a text over several lines for
//! code from its second line on.

use annals_view::words::shortened;

use crate::html::Html;

/// What a scanner knows of a language.
struct CodeLanguage {
    names: &'static [&'static str],
    /// The mark of a comment up to the end of the line.
    comment: &'static str,
    /// True if comments may stand between `/*` and `*/`.
    has_blocks: bool,
    quotes: &'static str,
    keywords: &'static [&'static str],
}

const LANGUAGES: [CodeLanguage; 5] = [
    CodeLanguage {
        names: &["rust", "rs"],
        comment: "//",
        has_blocks: true,
        quotes: "\"",
        keywords: &[
            "as", "async", "await", "break", "const", "continue", "crate", "else", "enum", "false", "fn", "for", "if",
            "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "self", "Self",
            "static", "struct", "super", "trait", "true", "type", "unsafe", "use", "where", "while",
        ],
    },
    CodeLanguage {
        names: &[
            "js",
            "javascript",
            "ts",
            "typescript",
            "jsx",
            "tsx",
            "java",
            "c",
            "h",
            "cpp",
            "c++",
            "cs",
            "go",
            "swift",
            "kotlin",
            "php",
            "scala",
            "dart",
            "json",
            "jsonc",
            "proto",
            "zig",
        ],
        comment: "//",
        has_blocks: true,
        quotes: "\"'`",
        keywords: &[
            "async",
            "await",
            "break",
            "case",
            "catch",
            "class",
            "const",
            "continue",
            "def",
            "default",
            "defer",
            "do",
            "else",
            "enum",
            "export",
            "extends",
            "false",
            "finally",
            "for",
            "func",
            "function",
            "go",
            "if",
            "implements",
            "import",
            "in",
            "include",
            "int",
            "interface",
            "let",
            "map",
            "new",
            "nil",
            "null",
            "package",
            "private",
            "protected",
            "public",
            "range",
            "return",
            "static",
            "struct",
            "super",
            "switch",
            "this",
            "throw",
            "true",
            "try",
            "type",
            "typeof",
            "undefined",
            "var",
            "void",
            "while",
            "yield",
        ],
    },
    CodeLanguage {
        names: &["python", "py", "ruby", "rb", "elixir", "ex", "r", "julia"],
        comment: "#",
        has_blocks: false,
        quotes: "\"'",
        keywords: &[
            "and", "as", "assert", "async", "await", "begin", "break", "class", "continue", "def", "del", "do", "elif",
            "else", "end", "except", "False", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
            "module", "nil", "None", "nonlocal", "not", "or", "pass", "raise", "require", "rescue", "return", "self",
            "True", "try", "unless", "while", "with", "yield",
        ],
    },
    CodeLanguage {
        names: &[
            "sh",
            "bash",
            "shell",
            "zsh",
            "console",
            "toml",
            "yaml",
            "yml",
            "ini",
            "dockerfile",
            "make",
            "makefile",
        ],
        comment: "#",
        has_blocks: false,
        quotes: "\"'",
        keywords: &[
            "case", "do", "done", "elif", "else", "esac", "export", "false", "fi", "for", "function", "if", "in",
            "local", "return", "then", "true", "until", "while",
        ],
    },
    CodeLanguage {
        names: &["sql", "sqlite", "postgres", "lua", "haskell", "hs"],
        comment: "--",
        has_blocks: false,
        quotes: "\"'",
        keywords: &[
            "and", "as", "by", "create", "delete", "else", "end", "from", "function", "group", "if", "index", "insert",
            "into", "join", "left", "limit", "local", "not", "null", "on", "or", "order", "return", "select", "set",
            "table", "then", "update", "values", "where", "with",
        ],
    },
];

/// Adds code with its language above it.
pub(crate) fn add_to(html: &mut Html, language: &str, text: &str) {
    let name = language.split([' ', ',', '{']).next().unwrap_or_default();
    html.open("div", &[("class", "code")]);
    if !name.is_empty() {
        html.within("p", &[], |html| _ = html.element("span", &[("dir", "auto")], &shortened(name, 60)));
    }
    html.open("pre", &[("dir", "auto")]).open("code", &[]);
    let folded = name.to_ascii_lowercase();
    let known = LANGUAGES.iter().find(|language| language.names.contains(&&*folded));
    match (folded.as_str(), known) {
        ("diff" | "patch", _) => text.split_inclusive('\n').for_each(|line| difference(html, line)),
        (_, Some(language)) => {
            let mut in_block = false;
            text.split_inclusive('\n').for_each(|line| language.line(html, line, &mut in_block));
        }
        _ => _ = html.value(text),
    }
    html.close("code").close("pre").close("div");
}

/// Adds a line of a difference.
fn difference(html: &mut Html, line: &str) {
    match line.chars().next() {
        Some('+') => html.classed("span", "plus", line),
        Some('-') => html.classed("span", "minus", line),
        Some('@') => html.classed("span", "c", line),
        _ => html.value(line),
    };
}

impl CodeLanguage {
    /// Adds a line; `in_block` says whether it begins, and then whether it ends, within a comment.
    fn line(&self, html: &mut Html, line: &str, in_block: &mut bool) {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let (class, len) = if *in_block || (self.has_blocks && rest.starts_with("/*")) {
                let end = rest.find("*/").filter(|end| *in_block || *end > 1);
                *in_block = end.is_none();
                ("c", end.map_or(rest.len(), |end| end + 2))
            } else if rest.starts_with(self.comment) {
                ("c", rest.len())
            } else if self.quotes.contains(first) {
                ("s", quoted(rest, first))
            } else if first.is_ascii_digit() {
                ("n", run(rest, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.')))
            } else if first.is_alphabetic() || first == '_' {
                let len = run(rest, |c| c.is_alphanumeric() || c == '_');
                (if self.is_keyword(&rest[..len]) { "k" } else { "" }, len)
            } else {
                ("", first.len_utf8())
            };
            debug_assert!(len > 0, "the scanner goes on");
            let (word, after) = rest.split_at(len);
            if class.is_empty() {
                html.value(word)
            } else {
                html.open("span", &[("class", class)]).value(word).close("span")
            };
            rest = after;
        }
    }

    fn is_keyword(&self, word: &str) -> bool {
        let is_folded = self.comment == "--";
        self.keywords
            .iter()
            .any(|keyword| if is_folded { keyword.eq_ignore_ascii_case(word) } else { *keyword == word })
    }
}

/// Returns the bytes of the characters that begin a text and pass a test.
fn run(text: &str, test: impl Fn(char) -> bool) -> usize {
    text.find(|c| !test(c)).unwrap_or(text.len())
}

/// Returns the bytes of a text in quotes; one that does not end on its line is the quote alone.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            c if c == quote && !is_escaped => return at + 1,
            c => is_escaped = c == '\\' && !is_escaped,
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(language: &str, text: &str) -> String {
        let mut html = Html::new();
        add_to(&mut html, language, text);
        let markup = html.into_markup();
        let code = markup.split("<code>").nth(1).unwrap().split("</code>").next().unwrap();
        code.replace("<span class=\"", "[").replace("\">", " ").replace("</span>", "]")
    }

    #[test]
    fn words_have_their_classes() {
        assert_eq!(
            shown("rust", "let a = \"<b>\\\"\"; // it's 1\n"),
            "[k let] a = [s &quot;&lt;b&gt;\\&quot;&quot;]; [c // it&#39;s 1\n]"
        );
        assert_eq!(shown("rs", "/* a\nb */ fn 1_000u8"), "[c /* a\n][c b */] [k fn] [n 1_000u8]");
        assert_eq!(shown("rust", "/*/ x"), "[c /*/ x]");
        assert_eq!(shown("python", "x = 'a' # b"), "x = [s &#39;a&#39;] [c # b]");
        assert_eq!(shown("SQL", "SELECT a"), "[k SELECT] a");
        assert_eq!(shown("diff", "-a\n+b\n c"), "[minus -a\n][plus +b\n] c");
        assert_eq!(shown("brainfuck", "let <"), "let &lt;");
        assert_eq!(shown("rust", "'a \" b"), "&#39;a [s &quot;] b");
    }
}
