//! HTML pages with a common style, and their parts.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hipvit_image::{Result, RgbImage, encode_png};

/// Style of all pages. The colours are variables, which drawings use too.
const STYLE: &str = "
:root { color-scheme: light dark; --text: #1f2328; --note: #59636e; --line: #d9dee3; --back: #fff; --panel: #f6f8fa; --bar: #2f7bd6;
  --for: #d61e28; --against: #1e5adc }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --note: #9aa4af; --line: #343b44; --back: #0f1318; --panel: #181d24; --bar: #4c94e8; --for: #ff5a5f;
    --against: #5b93ff }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 1080px; margin: 2em auto; padding: 0 1em }
h1 { margin-bottom: 0 }
h2 { margin-top: 2em; border-bottom: 1px solid var(--line) }
figure { margin: 0; display: inline-block; vertical-align: top }
figcaption, .note { color: var(--note); font-size: 13px }
.note { max-width: 52em }
.row { display: flex; flex-wrap: wrap; gap: 1em; margin: 1em 0 }
svg { display: block }
svg text { fill: var(--note) }
.scroll { overflow-x: auto }
table { border-collapse: collapse; margin: .7em 0; font-variant-numeric: tabular-nums }
th, td { padding: .15em .7em; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top }
td.n, th.n { text-align: right }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--panel); padding: .7em }
details { margin: .6em 0 }
summary { cursor: pointer; font-weight: 600 }
";

/// Returns a page. `body` is HTML. `style` is CSS in addition to the common style.
pub fn document(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width\"/>\n<title>{}</title>\n<style>{STYLE}{style}</style>\n\
         </head>\n<body>\n{body}</body>\n</html>\n",
        escape(title)
    )
}

/// Returns a section. `body` is HTML.
pub fn section(heading: &str, body: &str) -> String {
    format!("<h2>{}</h2>\n{body}\n", escape(heading))
}

/// Returns a table. Cells contain HTML. Columns from `numbers` on are right-aligned.
pub fn table(heads: &[&str], numbers: usize, rows: &[Vec<String>]) -> String {
    let class = |column: usize| if column >= numbers { " class=\"n\"" } else { "" };
    let mut text = "<div class=\"scroll\"><table>\n".to_owned();
    if heads.iter().any(|head| !head.is_empty()) {
        text += "<tr>";
        for (i, head) in heads.iter().enumerate() {
            let _ = write!(text, "<th{}>{}</th>", class(i), escape(head));
        }
        text += "</tr>\n";
    }
    for row in rows {
        text += "<tr>";
        for (i, cell) in row.iter().enumerate() {
            let _ = write!(text, "<td{}>{cell}</td>", class(i));
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}

/// Escapes a string for text and attributes, including control characters, which neither allows.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() => escaped.extend(c.escape_default()),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns the image as a `data:` URL of a PNG file.
///
/// # Errors
///
/// Returns the errors of [`encode_png`].
pub fn data_url(image: &RgbImage) -> Result<String> {
    Ok(format!(
        "data:image/png;base64,{}",
        STANDARD.encode(encode_png(image)?)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_cells_are_html() {
        let page = document("a < b", "", &table(&["x & y"], 0, &[vec!["<b>1</b>".into()]]));
        assert!(page.contains("<title>a &lt; b</title>"), "{page}");
        assert!(page.contains("<th class=\"n\">x &amp; y</th>"), "{page}");
        assert!(page.contains("<td class=\"n\"><b>1</b></td>"), "{page}");
        assert_eq!(escape("'\u{7}'"), "&#39;\\u{7}&#39;");
    }

    #[test]
    fn a_data_url_has_the_bytes_of_the_file() {
        let image = RgbImage::new(1, 1, vec![1, 2, 3]).unwrap();
        let url = data_url(&image).unwrap();
        let encoded = url.strip_prefix("data:image/png;base64,").unwrap();
        assert_eq!(STANDARD.decode(encoded).unwrap(), encode_png(&image).unwrap());
    }
}
