//! The page of `hipvit search --html`: one file with thumbnails, which loads nothing.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use hipvit::Session;
use hipvit::image::{Filter, Limits, RgbImage, open, resize};
use hipvit_report::page::{data_url, document, escape, section};
use hipvit_search::{Index, Kind, Pair};
use rayon::prelude::*;

use super::query::Query;
use crate::output;

const STYLE: &str = "
figure { width: 168px; overflow-wrap: anywhere }
figure img, figure .none { max-width: 160px; max-height: 160px; display: block }
figure .none { width: 160px; height: 90px; background: var(--panel); color: var(--note); padding: .5em; box-sizing: border-box }
";

/// Longest side of a thumbnail in pixels.
const SIDE: usize = 160;

/// Maximum number of pairs on a page.
const MAX_PAIRS: usize = 500;

/// Returns the page of the rows found for each query.
pub(super) fn results(index: &Index, session: &Session, queries: &[Query]) -> Result<String> {
    let mut body = heading(index, &format!("Model: {}", session.name()));
    let mut missing = 0;
    for query in queries {
        let mut content = String::new();
        if let Some(picture) = &query.picture {
            content += &format!(
                "<div class=\"row\">{}</div>\n",
                figure(Some(&thumbnail(picture)?), "query")
            );
        }
        let rows: Vec<usize> = query.hits.iter().map(|hit| hit.row).collect();
        let pictures = pictures(index, &rows);
        content += "<div class=\"row\">\n";
        for (rank, (hit, picture)) in query.hits.iter().zip(&pictures).enumerate() {
            missing += usize::from(picture.is_none());
            let name = index.name(hit.row);
            let caption = format!("{}. {:.4}<br/>{}", rank + 1, hit.score, escape(&name));
            content += &figure(picture.as_deref(), &caption);
        }
        content += "</div>\n";
        body += &section(&query.name, &content);
    }
    note_missing(index, missing);
    Ok(document("hipvit search", STYLE, &body))
}

/// Returns the page of pairs of near-duplicates.
pub(super) fn duplicates(index: &Index, pairs: &[Pair]) -> Result<String> {
    let shown = &pairs[..pairs.len().min(MAX_PAIRS)];
    let mut body = heading(
        index,
        &format!("{} pairs of near-duplicates, {} shown.", pairs.len(), shown.len()),
    );
    let rows: Vec<usize> = shown.iter().flat_map(|pair| [pair.first, pair.second]).collect();
    let pictures = pictures(index, &rows);
    note_missing(index, pictures.iter().filter(|picture| picture.is_none()).count());
    for (pair, pictures) in shown.iter().zip(pictures.chunks_exact(2)) {
        let _ = write!(body, "<h3>{:.4}</h3>\n<div class=\"row\">\n", pair.similarity);
        for (row, picture) in [pair.first, pair.second].into_iter().zip(pictures) {
            body += &figure(picture.as_deref(), &escape(&index.name(row)));
        }
        body += "</div>\n";
    }
    Ok(document("hipvit search --duplicates", STYLE, &body))
}

fn heading(index: &Index, text: &str) -> String {
    let path = escape(&index.path().display().to_string());
    let text = escape(text);
    format!(
        "<h1>hipvit search</h1>\n<p class=\"note\">{path}, {} rows. {text}</p>\n",
        index.len()
    )
}

/// Returns a figure. `caption` is HTML.
fn figure(picture: Option<&str>, caption: &str) -> String {
    let picture = match picture {
        Some(url) => format!("<img src=\"{url}\" alt=\"\"/>"),
        None => "<div class=\"none\">no picture</div>".to_owned(),
    };
    format!("<figure>{picture}<figcaption>{caption}</figcaption></figure>\n")
}

/// Returns the thumbnails of rows, as URLs. A row has none if it is a text, or if its file cannot be decoded.
fn pictures(index: &Index, rows: &[usize]) -> Vec<Option<String>> {
    if has_texts(index) {
        return vec![None; rows.len()];
    }
    let picture = |&row: &usize| {
        let image = open(Path::new(&*index.name(row)), Limits::default()).ok()?;
        thumbnail(&image).ok()
    };
    rows.par_iter().map(picture).collect()
}

/// Returns true if the rows of an index are texts.
fn has_texts(index: &Index) -> bool {
    index
        .description()
        .is_some_and(|description| description.kind == Kind::Text)
}

/// Returns an image of at most [`SIDE`] pixels a side as a URL.
fn thumbnail(image: &RgbImage) -> hipvit::image::Result<String> {
    let longest = image.width.max(image.height);
    if longest <= SIDE {
        return data_url(image);
    }
    let side = |length: usize| (length * SIDE).div_ceil(longest).max(1);
    let small = resize(image, side(image.width), side(image.height), Filter::Bilinear)?;
    data_url(&small)
}

/// Says that images of an index of images were not found.
fn note_missing(index: &Index, missing: usize) {
    if missing > 0 && !has_texts(index) {
        output::note(&format!(
            "the page lacks {missing} pictures, whose names in the index are no image files from here. Run the command in the directory of `hipvit embed`"
        ));
    }
}
