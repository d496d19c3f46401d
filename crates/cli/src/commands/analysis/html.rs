//! The comparison of two models as one page that needs nothing else.

use std::fmt::Write as _;
use std::path::Path;

use html_escape::encode_text;
use runs::files::replace;

use crate::commands::analysis::token_gains::{Summary, Token, WordProbability};
use crate::failure::Failure;
use crate::statistics::decimal;

const STYLE: &str = "body{font:15px/1.45 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#111}\
section{border-top:1px solid #999;padding:.6em 0}\
p{margin:.3em 0}.target{font-weight:bold;border:1px solid #111;padding:0 .3em}\
.tops{display:flex;gap:2em;flex-wrap:wrap}table{border-collapse:collapse;min-width:16em}\
caption{text-align:left;font-weight:bold}td{padding:0 .8em 0 0}td.p{text-align:right;font-variant-numeric:tabular-nums}\
tr.hit td{font-weight:bold;text-decoration:underline}.bar{display:inline-block;height:.6em;background:#555}";

/// Writes the page to `path`, replaced as a whole.
///
/// # Errors
/// A file that cannot be written.
pub fn write(path: &Path, summary: &Summary, tokens: &[Token]) -> Result<(), Failure> {
    Ok(replace(path, page(summary, tokens).as_bytes())?)
}

fn page(summary: &Summary, tokens: &[Token]) -> String {
    let (a, b) = (encode_text(&summary.a), encode_text(&summary.b));
    let title = format!("{a} against {b}");
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n\
         <p>A: {a} ({}), perplexity {}. B: {b} ({}), perplexity {}. A finds {:.1} % of {} tokens more probable than B does.</p>\n\
         <p>The {} tokens with the largest gain <i>log P<sub>A</sub> − log P<sub>B</sub></i>, in nats:</p>\n",
        summary.head_a,
        decimal(summary.ppl_a, 2),
        summary.head_b,
        decimal(summary.ppl_b, 2),
        100.0 * summary.a_better,
        summary.tokens,
        tokens.len(),
    );
    for (rank, token) in tokens.iter().enumerate() {
        let context = token.context.join(" ");
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "<section>\n<p>{}. token {}: {} <span class=\"target\">{}</span></p>\n\
             <p>gain {:.2}; P under A {:.5}, under B {:.5}</p>\n<div class=\"tops\">\n{}{}</div>\n</section>\n",
            rank + 1,
            token.position,
            encode_text(&context),
            encode_text(&token.target),
            token.gain,
            token.p_a,
            token.p_b,
            table("A", &token.top_a, &token.target),
            table("B", &token.top_b, &token.target),
        );
    }
    text.push_str("</body>\n</html>\n");
    text
}

fn table(caption: &str, top: &[WordProbability], target: &str) -> String {
    let mut text = format!("<table><caption>{caption}</caption>\n");
    for WordProbability { word, p } in top {
        let class = if word == target { " class=\"hit\"" } else { "" };
        let _ = writeln!(
            text,
            "<tr{class}><td>{}</td><td class=\"p\">{p:.4}</td><td><span class=\"bar\" style=\"width:{:.1}em\"></span></td></tr>",
            encode_text(word),
            8.0 * p,
        );
    }
    text.push_str("</table>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use awd_lstm::HeadKind;

    #[test]
    fn words_are_escaped_everywhere() {
        let summary = Summary {
            a: "<i>a".into(),
            head_a: HeadKind::Mos,
            ppl_a: 1.0,
            b: "b&c".into(),
            head_b: HeadKind::Softmax,
            ppl_b: 2.0,
            tokens: 1,
            a_better: 1.0,
        };
        let word = |word: &str| WordProbability { word: word.into(), p: 0.5 };
        let token = Token {
            position: 0,
            context: vec!["<unk>".into(), "</p>".into()],
            target: "<eos>".into(),
            gain: 1.0,
            p_a: 0.5,
            p_b: 0.2,
            top_a: vec![word("<eos>"), word("a&b")],
            top_b: vec![word("<script>")],
        };
        let page = page(&summary, &[token]);
        for tag in ["<unk>", "<eos>", "<script>", "<i>a", "b&c", "a&b"] {
            assert!(!page.contains(tag), "{tag} is not escaped in {page}");
        }
        assert!(
            page.contains("&lt;unk&gt; &lt;/p&gt;") && page.contains("a&amp;b") && page.contains("b&amp;c")
        );
        // The target is marked in A's list alone.
        assert_eq!(page.matches("class=\"hit\"").count(), 1);
    }
}
