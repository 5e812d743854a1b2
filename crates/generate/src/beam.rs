//! Beam search over the texts of an image, as transformers' `generate` does it.
//!
//! The best texts so far are continued together. Source: `GenerationMixin._beam_search` of transformers 5.24, with `do_sample=False`.

/// Score of a text that must not be chosen.
const EXCLUDED: f64 = -1e9;

/// Rules of a search.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BeamRules {
    /// Texts that are continued.
    pub(crate) beams: usize,
    /// Scores are divided by the length to this power. Above 0, long texts win.
    pub(crate) length_penalty: f64,
    pub(crate) stopping: EarlyStopping,
}

/// When a search ends before the maximum length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyStopping {
    /// As soon as there are as many complete texts as beams.
    Full,
    /// When no text of the current length can win.
    Unlikely,
    /// When no text can win.
    Never,
}

/// A text that is continued.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Beam {
    /// Tokens, with those of the prompt.
    pub(crate) tokens: Vec<u32>,
    /// Sum of the logarithms of the tokens' probabilities.
    score: f64,
}

/// A text that is complete, or none yet.
#[derive(Clone, Debug)]
struct Complete {
    tokens: Vec<u32>,
    score: f64,
    exists: bool,
}

/// The search for the text of an image.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    rules: BeamRules,
    ends: Vec<u32>,
    /// The last token of a text of the maximum length, whatever the logits are.
    forced_end: Option<u32>,
    /// Number of tokens of the prompt.
    prompt: usize,
    /// Maximum number of tokens, with those of the prompt.
    length: usize,
    pub(crate) beams: Vec<Beam>,
    complete: Vec<Complete>,
    can_improve: bool,
    is_done: bool,
}

/// A text that is one token longer.
struct Continuation {
    /// Index of the beam that it continues.
    beam: usize,
    token: u32,
    score: f64,
    is_complete: bool,
}

impl Search {
    /// Starts a search after the tokens `first`. `length` is the maximum number of tokens, with them.
    pub(crate) fn new(
        first: Vec<u32>,
        length: usize,
        rules: &BeamRules,
        ends: &[u32],
        forced_end: Option<u32>,
    ) -> Self {
        let none = Complete {
            tokens: Vec::new(),
            score: EXCLUDED,
            exists: false,
        };
        // The first token has one continuation of each kind, not one for each beam.
        let beam = Beam {
            score: 0.0,
            tokens: first,
        };
        Self {
            prompt: beam.tokens.len(),
            beams: vec![beam],
            complete: vec![none; rules.beams],
            rules: rules.clone(),
            ends: ends.to_vec(),
            forced_end,
            length,
            can_improve: true,
            is_done: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns the tokens of the best text after the prompt.
    pub(crate) fn best(&self) -> &[u32] {
        let best = self.complete.first();
        best.and_then(|text| text.tokens.get(self.prompt..))
            .unwrap_or_default()
    }

    /// Returns the number of most likely tokens after each beam that are considered.
    pub(crate) fn kept(&self) -> usize {
        self.rules.beams * 2.max(1 + self.ends.len())
    }

    /// Continues the beams. `candidates` has the most likely tokens after each, by descending logarithm of their probability. Returns the beam that each new one continues.
    pub(crate) fn advance(&mut self, candidates: &[Vec<(u32, f64)>]) -> Vec<usize> {
        let current = self.beams.first().map_or(0, |beam| beam.tokens.len());
        let best = self.continuations(candidates, current);
        let beams = self.rules.beams;
        let going: Vec<&Continuation> = best.iter().filter(|next| !next.is_complete).take(beams).collect();
        let all_complete = going.is_empty();
        let extended = |next: &Continuation| {
            let mut tokens = self.beams[next.beam].tokens.clone();
            tokens.push(next.token);
            tokens
        };

        // No length counts the prompt.
        let penalty = ((current + 1 - self.prompt) as f64).powf(self.rules.length_penalty);
        let is_full = self.complete.iter().all(|text| text.exists);
        let is_closed = is_full && self.rules.stopping == EarlyStopping::Full || !self.can_improve;
        let mut complete = std::mem::take(&mut self.complete);
        for (rank, next) in best.iter().enumerate() {
            if next.is_complete && rank < beams && !is_closed {
                complete.push(Complete {
                    tokens: extended(next),
                    score: next.score / penalty,
                    exists: true,
                });
            }
        }
        // Equal scores keep their order.
        complete.sort_by(|a, b| b.score.total_cmp(&a.score));
        complete.truncate(beams);

        let parents = going.iter().map(|next| next.beam).collect();
        let next = going.iter().map(|next| Beam {
            tokens: extended(next),
            score: next.score,
        });
        let next: Vec<Beam> = next.collect();
        self.complete = complete;
        self.beams = next;
        self.can_improve = self.can_improve && self.may_improve(current + 1);
        let is_full = self.complete.iter().all(|text| text.exists);
        self.is_done =
            !self.can_improve || is_full && self.rules.stopping == EarlyStopping::Full || all_complete;
        parents
    }

    /// Returns the best continuations by descending score.
    fn continuations(&self, candidates: &[Vec<(u32, f64)>], current: usize) -> Vec<Continuation> {
        let kept = self.kept();
        let mut best: Vec<Continuation> = Vec::new();
        for (index, (beam, candidates)) in self.beams.iter().zip(candidates).enumerate() {
            let forced = self.forced_end.filter(|_| current + 1 == self.length);
            let forced = forced.map(|end| [(end, 0.0)]);
            let candidates = match &forced {
                Some(end) => &end[..],
                None => &candidates[..kept.min(candidates.len())],
            };
            best.extend(candidates.iter().map(|&(token, score)| Continuation {
                beam: index,
                token,
                score: beam.score + score,
                is_complete: current + 1 >= self.length || self.ends.contains(&token),
            }));
        }
        let place = |next: &Continuation| (next.beam, next.token);
        best.sort_by(|a, b| b.score.total_cmp(&a.score).then(place(a).cmp(&place(b))));
        best.truncate(kept);
        best
    }

    /// Returns true if a beam of `length` tokens may still win against the worst complete text.
    fn may_improve(&self, length: usize) -> bool {
        let longest = match self.rules.stopping {
            EarlyStopping::Never if self.rules.length_penalty > 0.0 => self.length,
            _ => length,
        };
        let Some(first) = self.beams.first() else {
            return false;
        };
        let best = first.score / ((longest - self.prompt) as f64).powf(self.rules.length_penalty);
        let worst = self.complete.last().map_or(EXCLUDED, |text| text.score);
        // A place without a complete text counts as EXCLUDED.
        self.complete.iter().any(|text| !text.exists && best > EXCLUDED) || best > worst
    }
}
