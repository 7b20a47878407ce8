//! `docs/log.svg`: what the command prints on a terminal over the fixed store of the snapshots, as a picture.

use std::fmt::Write as _;

use super::guides::words;
use super::snapshots::{compare_file, fixed};
use super::*;

const COMMANDS: [&str; 3] = ["annals threads", "annals log trip", "annals diff trip~4 trip"];
/// The width of a cell, the height of a line, and the margin, in pixels.
const CELL: [usize; 3] = [8, 19, 16];

/// Returns the class of a sequence that sets a color or a weight.
fn class(code: &str) -> Option<&'static str> {
    Some(match code {
        "0" | "" => return None,
        "1" => "strong",
        "2" => "dim",
        "31" => "red",
        "32" => "green",
        "33" => "yellow",
        "34" => "blue",
        "35" => "magenta",
        "36" => "cyan",
        other => panic!("a sequence without a class: {other:?}"),
    })
}

/// Returns the parts of a line, each with its class.
fn parts(line: &str) -> Vec<(Option<&'static str>, &str)> {
    let mut pieces = line.split("\u{1b}[");
    let mut parts = vec![(None, pieces.next().unwrap())];
    for piece in pieces {
        let (code, text) = piece.split_once('m').expect("a sequence ends");
        parts.push((class(code), text));
    }
    parts.retain(|(_, text)| !text.is_empty());
    parts
}

/// Draws lines of a terminal.
fn drawn(lines: &[String]) -> String {
    let width = |line: &String| parts(line).iter().map(|(_, text)| text.chars().count()).sum::<usize>();
    let [cell, height, margin] = CELL;
    let columns = lines.iter().map(width).max().unwrap_or(0);
    let (w, h) = (columns * cell + 2 * margin, lines.len() * height + 2 * margin);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\">\n<style>\n\
         text {{ font: 13px ui-monospace, Menlo, Consolas, \"DejaVu Sans Mono\", monospace; fill: #d6deeb; white-space: pre }}\n\
         .strong {{ font-weight: bold }} .dim {{ fill: #7f8ea3 }} .red {{ fill: #ff8b8b }} .green {{ fill: #8fd694 }}\n\
         .yellow {{ fill: #e6c86e }} .blue {{ fill: #82aaff }} .magenta {{ fill: #d7a1f9 }} .cyan {{ fill: #7fdbca }}\n\
         </style>\n<rect width=\"{w}\" height=\"{h}\" rx=\"8\" fill=\"#171c26\"/>\n"
    );
    for (row, line) in lines.iter().enumerate() {
        let mut column = 0;
        let y = margin + row * height + 14;
        for (class, text) in parts(line) {
            let cells = text.chars().count();
            let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let class = class.map_or_else(String::new, |class| format!(" class=\"{class}\""));
            // Each part has its place and its length, whatever font the reader has.
            let (x, length) = (margin + column * cell, cells * cell);
            writeln!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\" lengthAdjust=\"spacing\" xml:space=\"preserve\"{class}>{text}</text>"
            )
            .unwrap();
            column += cells;
        }
    }
    svg + "</svg>\n"
}

#[test]
fn the_picture_of_the_log_is_what_the_command_prints() {
    let bench = fixed();
    let mut lines = Vec::new();
    for command in COMMANDS {
        let mut process = Command::new(env!("CARGO_BIN_EXE_annals"));
        process.args(&words(command)[1..]).args(["--color", "always"]).current_dir(bench.folder.path());
        let output = process.env("ANNALS_STORE", "store.db").env("COLUMNS", "100").output().unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(format!("\u{1b}[2m$\u{1b}[0m {command}"));
        lines.extend(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned));
    }
    assert!(lines.iter().any(|line| line.contains("\u{1b}[35m")), "the picture has colors");
    compare_file(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/log.svg"), &drawn(&lines));
}
