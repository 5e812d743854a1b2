use super::scores::score;
use super::*;
use crate::array::Array;

const EXTENTS: Extents = Extents {
    heads: 2,
    queries: 6,
    keys: 6,
};

fn captured<'a>(tensors: &[&'a Array]) -> Vec<Captured<'a, f64>> {
    tensors.iter().map(|&tensor| tensor.into()).collect()
}

/// Returns the mask for each query and key of image 0 and head `head`.
fn mask(mask: Bool, tensors: &[&Array], extents: Extents) -> Vec<Vec<bool>> {
    let program = Pattern::new().with_mask(mask).compile().unwrap();
    let output = program.mask().unwrap();
    let mut evaluator = Evaluator::new(&program, &[output], &captured(tensors), &[], extents).unwrap();
    let row = |query| {
        evaluator.evaluate(
            Row {
                batch: 0,
                head: 0,
                query,
            },
            &[],
        );
        (0..extents.keys)
            .map(|key| evaluator.is_true(output, key))
            .collect()
    };
    (0..extents.queries).map(row).collect()
}

/// Returns the changed scores of a head, `[queries][keys]`.
fn scores(
    expression: Float,
    tensors: &[&Array],
    scalars: &[Number],
    head: usize,
    before: f64,
) -> Vec<Vec<f64>> {
    let program = Pattern::new().with_score(expression).compile().unwrap();
    let output = program.score().unwrap();
    let mut evaluator = Evaluator::new(&program, &[output], &captured(tensors), scalars, EXTENTS).unwrap();
    let row = |query| {
        let row = Row {
            batch: 0,
            head,
            query,
        };
        evaluator.evaluate(row, &[before; EXTENTS.keys]);
        (0..EXTENTS.keys)
            .map(|key| evaluator.float(output, key))
            .collect()
    };
    (0..EXTENTS.queries).map(row).collect()
}

fn check_mask(found: &[Vec<bool>], expected: impl Fn(i32, i32) -> bool) {
    for (query, row) in found.iter().enumerate() {
        for (key, &seen) in row.iter().enumerate() {
            assert_eq!(
                seen,
                expected(query as i32, key as i32),
                "query {query}, key {key}"
            );
        }
    }
}

#[test]
fn masks_hide_the_keys_that_their_docs_say() {
    check_mask(&mask(masks::causal(), &[], EXTENTS), |q, k| k <= q);
    check_mask(&mask(masks::window(2, 1), &[], EXTENTS), |q, k| {
        (-2..=1).contains(&(k - q))
    });
    check_mask(&mask(masks::prefix(2), &[], EXTENTS), |_, k| k < 2);
    check_mask(&mask(masks::dilated(3), &[], EXTENTS), |q, k| (k - q) % 3 == 0);
    let documents = Array::new([1, 6], vec![0., 0., 1., 1., 1., 2.]).unwrap();
    let of = |token: i32| [0, 0, 1, 1, 1, 2][token as usize];
    check_mask(&mask(masks::documents("ids"), &[&documents], EXTENTS), |q, k| {
        of(q) == of(k)
    });
    let present = Array::new([1, 6], vec![1., 0., 1., 1., 0., 0.]).unwrap();
    check_mask(
        &mask(masks::key_padding("present"), &[&present], EXTENTS),
        |_, k| [0, 2, 3].contains(&k),
    );
    // A class token and a grid of 2 × 3, of which a query sees one column to both sides.
    let grid = Extents {
        queries: 7,
        keys: 7,
        ..EXTENTS
    };
    check_mask(&mask(masks::window_2d(3, [0, 1], 1), &[], grid), |q, k| {
        let [row, column] = [|t: i32| (t - 1) / 3, |t: i32| (t - 1) % 3];
        q == 0 || k == 0 || row(q) == row(k) && (column(q) - column(k)).abs() <= 1
    });
    let both = masks::causal() & !masks::prefix(1) | masks::window(0, 0);
    check_mask(&mask(both, &[], EXTENTS), |q, k| k <= q && k >= 1 || q == k);
}

/// Swin's mask: numbers the regions of the rolled grid, and windows of it see their own region only.
#[test]
fn a_shifted_window_sees_what_swin_s_mask_lets_it_see() {
    let (grid, window, shift) = (6i32, 3i32, 1i32);
    let tokens = (grid * grid) as usize;
    let extents = Extents {
        queries: tokens,
        keys: tokens,
        ..EXTENTS
    };
    let found = mask(
        masks::shifted_window([grid; 2], [window; 2], [shift; 2], 0),
        &[],
        extents,
    );
    let rolled = |x: i32| (x - shift).rem_euclid(grid);
    let region = |x: i32| match rolled(x) {
        x if x < grid - window => 0,
        x if x < grid - shift => 1,
        _ => 2,
    };
    let of = |token: i32| {
        let (row, column) = (token / grid, token % grid);
        (
            rolled(row) / window,
            rolled(column) / window,
            region(row),
            region(column),
        )
    };
    check_mask(&found, |q, k| of(q) == of(k));
}

#[test]
fn scores_are_those_of_their_formulas() {
    let alibi = scores(scores::alibi(score()), &[], &[], 1, 0.5);
    let slope = 2f64.powi(-8);
    assert!((alibi[1][4] - (0.5 - 3.0 * slope)).abs() < 1e-7);
    let capped = scores(
        scores::soft_cap(score(), floats::scalar("cap")),
        &[],
        &[Number::Float(2.0)],
        0,
        3.0,
    );
    assert!((capped[0][0] - 2.0 * (1.5f64).tanh()).abs() < 1e-12);
    // A window of 2 × 3.
    let table = Array::new([15, 2], (0..30).map(f64::from).collect()).unwrap();
    let found = scores(
        scores::relative_bias(score(), "table", [2, 3]),
        &[&table],
        &[],
        1,
        0.0,
    );
    for (q, row) in found.iter().enumerate() {
        for (k, &score) in row.iter().enumerate() {
            let row = q / 3 + 1 - k / 3;
            let column = q % 3 + 2 - k % 3;
            assert_eq!(score, ((row * 5 + column) * 2 + 1) as f64, "query {q}, key {k}");
        }
    }
    // A class token and a grid of 5 × 1.
    let table = Array::new([12, 2], (0..24).map(f64::from).collect()).unwrap();
    let found = scores(
        scores::relative_bias_with_class(score(), "table", [5, 1]),
        &[&table],
        &[],
        0,
        0.0,
    );
    assert_eq!([found[0][3], found[3][0], found[0][0]], [18.0, 20.0, 22.0]);
    assert_eq!(found[2][4], 2.0 * (1 + 4 - 3) as f64);
}

#[test]
fn integers_divide_as_in_python() {
    for (x, y, quotient, rest) in [
        (7, 3, 2, 1),
        (-7, 3, -3, 2),
        (7, -3, -3, -2),
        (-6, 3, -2, 0),
        (5, 0, 0, 0),
    ] {
        let expression = Int::from(x).floor_div(y).to_float() * 100.0 + Int::from(x).modulo(y).to_float();
        let found = scores(expression, &[], &[], 0, 0.0)[0][0];
        assert_eq!(found, f64::from(100 * quotient + rest), "{x} by {y}");
    }
}

#[test]
fn derivatives_are_differences() {
    let x = score();
    let loaded = || floats::load("t", [ints::key()]);
    let smooth = [
        x.clone() * x.clone() + loaded() * x.clone(),
        scores::soft_cap(x.clone() + loaded(), 1.5),
        (x.clone() / (loaded() + 3.0)).exp() - loaded().sqrt(),
        (x.clone() + 4.0).log() * x.abs().max(loaded()).min(2.0),
        Float::select(&ints::key().less(3), x.clone() * loaded(), -x.clone()),
        scores::alibi(x.clone()) + loaded(),
    ];
    let tensor: Vec<f64> = (0..6).map(|i| 0.3 + 0.1 * f64::from(i)).collect();
    for expression in smooth {
        let program = Pattern::new().with_score(expression.clone()).compile().unwrap();
        let derivative = program.differentiate().unwrap();
        let loads = derivative.loads.iter().flat_map(|&(load, factor)| [load, factor]);
        let outputs: Vec<usize> = derivative.score.into_iter().chain(loads).collect();
        let array = Array::new([6], tensor.clone()).unwrap();
        let tensors = [&array];
        let mut evaluator =
            Evaluator::new(&derivative.program, &outputs, &captured(&tensors), &[], EXTENTS).unwrap();
        let row = Row {
            batch: 0,
            head: 0,
            query: 2,
        };
        let before = [0.75; EXTENTS.keys];
        evaluator.evaluate(row, &before);
        let step = 1e-6;
        let value = |score: f64, added: f64| {
            let array = Array::new([6], tensor.iter().map(|t| t + added).collect()).unwrap();
            scores(expression.clone(), &[&array], &[], 0, score)[2].clone()
        };
        let [up, down] = [value(0.75 + step, 0.0), value(0.75 - step, 0.0)];
        let [more, less] = [value(0.75, step), value(0.75, -step)];
        for key in 0..EXTENTS.keys {
            let of_score = derivative.score.map_or(0.0, |step| evaluator.float(step, key));
            assert!(
                (of_score - (up[key] - down[key]) / (2.0 * step)).abs() < 1e-6,
                "{expression:?}, key {key}"
            );
            let of_tensor: f64 = derivative
                .loads
                .iter()
                .map(|load| evaluator.float(load.1, key))
                .sum();
            assert!(
                (of_tensor - (more[key] - less[key]) / (2.0 * step)).abs() < 1e-6,
                "{expression:?}, key {key}"
            );
            for &(load, _) in &derivative.loads {
                assert_eq!(evaluator.offset(load, key), Some(key));
            }
        }
    }
}

#[test]
fn repeated_expressions_are_one_step() {
    let place = || ints::query().floor_div(7) - ints::key().floor_div(7);
    let pattern = Pattern::new().with_mask(place().abs().less(2) & place().less(5));
    let program = pattern.compile().unwrap();
    let divisions = program.steps().iter();
    let divisions =
        divisions.filter(|step| matches!(step.instruction, Instruction::Apply(Operator::FloorDiv, _)));
    assert_eq!(divisions.count(), 2);
    let depends = program.steps()[program.mask().unwrap()].dependencies;
    assert_eq!(depends, Dependencies::QUERY.union(Dependencies::KEY));
}

#[test]
fn json_is_read_back() {
    let pattern = Pattern::new()
        .with_score(
            scores::bias(scores::soft_cap(score(), floats::scalar("cap")), "bias")
                * floats::table([0.5, 2.0], ints::head()),
        )
        .with_mask(masks::documents("ids") | masks::window(3, ints::scalar("right")) & !Bool::from(false));
    let json = serde_json::to_string(&pattern).unwrap();
    let read: Pattern = serde_json::from_str(&json).unwrap();
    assert_eq!(read, pattern);
    let causal: Pattern = serde_json::from_str(r#"{"mask": {"less_equal": ["key", "query"]}}"#).unwrap();
    assert_eq!(
        causal.compile().unwrap(),
        Pattern::new().with_mask(masks::causal()).compile().unwrap()
    );
}

#[test]
fn errors_name_the_expression_and_the_place() {
    for (json, expected) in [
        (
            r#"{"score": {"add": ["score", "query"]}}"#,
            "score: add[1]: is an integer, expected the type of the first operand. Convert integers with `to_float`",
        ),
        (
            r#"{"mask": {"add": ["key", 1]}}"#,
            "mask: is an integer, expected a truth value",
        ),
        (
            r#"{"mask": {"less": ["score", 0.5]}}"#,
            "mask: a mask cannot depend on the score. Use the key, the query or a tensor",
        ),
        (
            r#"{"mask": {"not": ["key", "key"]}}"#,
            "mask: not: takes 1 operands, got 2",
        ),
        (
            r#"{"score": {"load": {"tensor": "bias", "type": "float", "index": ["key", 0.5]}}}"#,
            "score: bias[1]: is a float, expected an integer",
        ),
        (
            r#"{"score": {"add": [{"load": {"tensor": "t", "type": "float", "index": ["key"]}}, {"load": {"tensor": "t", "type": "float", "index": ["head", "key"]}}]}}"#,
            "score: add[1]: t: `t` is a float with 2 indices here and a float with 1 indices before. Use two names",
        ),
    ] {
        let pattern: Pattern = serde_json::from_str(json).unwrap();
        assert_eq!(pattern.compile().unwrap_err().to_string(), expected);
    }
    for (json, expected) in [
        (
            r#"{"score": {"plus": ["score", 1.0]}}"#,
            "unknown operator `plus`",
        ),
        (r#"{"score": "scores"}"#, "unknown name `scores`"),
        (r#"{"scores": "score"}"#, "unknown field `scores`"),
        (r#"{"score": 3000000000}"#, "more than 32 bits"),
    ] {
        let error = serde_json::from_str::<Pattern>(json).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let program = Pattern::new()
        .with_score(scores::bias(score(), "bias"))
        .compile()
        .unwrap();
    let error = program.check_tensors(&[&[2, 6]]).unwrap_err().to_string();
    assert_eq!(
        error,
        "`bias`: has shape [2, 6], expected 3 extents of at least 1"
    );
    let program = Pattern::new()
        .with_score(score() * floats::scalar("factor"))
        .compile()
        .unwrap();
    let error = program.check_scalars(&[Number::Int(1)]).unwrap_err().to_string();
    assert_eq!(error, "`factor`: is a float, got an integer");
    let error = check_tokens(MAX_TOKENS + 1).unwrap_err().to_string();
    assert_eq!(
        error,
        "attention has 4194305 queries or keys, and a pattern indexes at most 4194304. Use fewer tokens"
    );
}
