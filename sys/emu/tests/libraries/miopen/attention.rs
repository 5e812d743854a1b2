//! Multi-head attention by find 2.0.

use hipvit_sys::miopen::{
    miopenMhaDescriptor_t, miopenProblem_t, miopenProblemDirection_t, miopenSolution_t,
    miopenTensorArgument_t, miopenTensorArgumentId_t as Id,
};

use super::*;

const SCALE: f32 = 0.3;

/// Each tensor of a forward problem: Q, K, V and O first.
fn tensors(kind: Kind, extents: [usize; 4], numbers: [f64; 6]) -> Vec<(Id, Tensor)> {
    let [batch, heads, tokens, _] = extents;
    let operand = |seed| Tensor::random(kind, &extents, seed);
    let number = |value| Tensor::packed(Kind::F32, &[1, 1, 1, 1], vec![value]);
    let rows = || Tensor::zeroes(Kind::F32, &[batch, heads, tokens, 1]);
    let [descale_q, descale_k, descale_v, descale_s, scale_s, scale_o] = numbers.map(number);
    vec![
        (Id::miopenTensorMhaQ, operand(1)),
        (Id::miopenTensorMhaK, operand(2)),
        (Id::miopenTensorMhaV, operand(3)),
        (Id::miopenTensorMhaO, Tensor::zeroes(kind, &extents)),
        (Id::miopenTensorMhaDescaleQ, descale_q),
        (Id::miopenTensorMhaDescaleK, descale_k),
        (Id::miopenTensorMhaDescaleV, descale_v),
        (Id::miopenTensorMhaDescaleS, descale_s),
        (Id::miopenTensorMhaScaleS, scale_s),
        (Id::miopenTensorMhaScaleO, scale_o),
        (Id::miopenTensorMhaDropoutProbability, number(0.0)),
        (Id::miopenTensorMhaDropoutSeed, number(0.0)),
        (Id::miopenTensorMhaDropoutOffset, number(0.0)),
        (Id::miopenTensorMhaAmaxO, number(0.0)),
        (Id::miopenTensorMhaAmaxS, number(0.0)),
        (Id::miopenTensorMhaM, rows()),
        (Id::miopenTensorMhaZInv, rows()),
    ]
}

fn problem(tensors: &[(Id, Tensor)]) -> miopenProblem_t {
    let (mut attention, mut problem): (miopenMhaDescriptor_t, _) = (ptr::null_mut(), ptr::null_mut());
    let (forward, backward) = (
        miopenProblemDirection_t::miopenProblemDirectionForward,
        miopenProblemDirection_t::miopenProblemDirectionBackward,
    );
    unsafe {
        ok(miopen().miopenCreateMhaDescriptor(&mut attention));
        ok(miopen().miopenSetMhaDescriptor(attention, SCALE));
        let mut scale = 0.0;
        ok(miopen().miopenGetMhaDescriptor(attention, &mut scale));
        assert_eq!(scale, SCALE);
        refused(
            miopen().miopenCreateMhaProblem(&mut problem, attention, backward),
            Status::miopenStatusUnsupportedOp,
        );
        ok(miopen().miopenCreateMhaProblem(&mut problem, attention, forward));
        for (id, tensor) in tensors {
            ok(miopen().miopenSetProblemTensorDescriptor(problem, *id, tensor.desc));
        }
    }
    problem
}

/// The solutions that are found, one at most.
fn find(handle: &Handle, problem: miopenProblem_t) -> Option<miopenSolution_t> {
    let (mut solution, mut count) = (ptr::null_mut(), 7);
    let options = ptr::null_mut();
    ok(unsafe { miopen().miopenFindSolutions(handle.0, problem, options, &mut solution, &mut count, 1) });
    assert!(count < 2);
    (count == 1).then_some(solution)
}

#[test]
fn attention() {
    let handle = Handle::new();
    let extents = [2, 3, 19, 8];
    let (tokens, channels) = (extents[2], extents[3]);
    for (kind, numbers) in [
        (Kind::F32, [1.0; 6]),
        (Kind::F16, [1.0; 6]),
        (Kind::Bf16, [2.0, 0.5, 4.0, 0.25, 4.0, 0.5]),
    ] {
        let tensors = tensors(kind, extents, numbers);
        let problem = problem(&tensors);
        let solution = find(&handle, problem).expect("a solution");
        ok(unsafe { miopen().miopenDestroyProblem(problem) });
        let mut bytes = 0;
        ok(unsafe { miopen().miopenGetSolutionWorkspaceSize(solution, &mut bytes) });
        assert_eq!(bytes, 2 * 3 * 19 * 19 * 4);
        let workspace = Tensor::zeroes(Kind::F32, &[bytes / 4]);
        let arguments: Vec<_> = tensors
            .iter()
            .map(|(id, tensor)| miopenTensorArgument_t {
                id: *id,
                descriptor: ptr::null_mut(),
                buffer: tensor.at(),
            })
            .collect();
        let run = |count: usize, bytes: usize| unsafe {
            let arguments = arguments.as_ptr();
            miopen().miopenRunSolution(handle.0, solution, count, arguments, workspace.at(), bytes)
        };
        refused(run(arguments.len() - 1, bytes), Status::miopenStatusBadParm);
        refused(run(arguments.len(), bytes - 1), Status::miopenStatusBadParm);
        ok(run(arguments.len(), bytes));

        // Powers of two: they only scale.
        let [dq, dk, dv, ds, ss, so] = numbers;
        let (mut expected, mut maxima) = (Vec::new(), Vec::new());
        let [q, k, v] = [0, 1, 2].map(|index| &tensors[index].1.values);
        for row in 0..2 * 3 * tokens {
            let head = row / tokens * tokens * channels;
            let products =
                |key: usize| (0..channels).map(move |c| (row * channels + c, head + key * channels + c));
            let score =
                |key| f64::from(SCALE) * dq * dk * products(key).map(|(a, b)| q[a] * k[b]).sum::<f64>();
            let scores: Vec<f64> = (0..tokens).map(score).collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            maxima.push((largest, 1e-5));
            for c in 0..channels {
                let sum: f64 = (0..tokens)
                    .map(|key| weights[key] * v[head + key * channels + c])
                    .sum();
                // Sums of 8 and of 19 products in f32, and an exponential.
                expected.push((sum / total * ss * ds * dv * so, 1e-5));
            }
        }
        compare(
            &format!("{kind:?}"),
            kind,
            &tensors[3].1.buffer.download(),
            &expected,
        );
        compare("maxima", Kind::F32, &tensors[15].1.buffer.download(), &maxima);
        ok(unsafe { miopen().miopenDestroySolution(solution) });
        refused(run(arguments.len(), bytes), Status::miopenStatusBadParm);
    }
}

#[test]
fn attention_has_no_solution_for_tensors_with_gaps_and_in_double_precision() {
    let handle = Handle::new();
    let extents = [2, 3, 5, 8];
    let strided = |tensors: &mut Vec<(Id, Tensor)>| {
        // The heads of a token side by side: MIOpen takes none such.
        let values = numbers(Kind::F16, extents.iter().product(), 4);
        tensors[0].1 = Tensor::with_strides(Kind::F16, &extents, &[120, 8, 24, 1], values);
    };
    let mut with_gaps = tensors(Kind::F16, extents, [1.0; 6]);
    strided(&mut with_gaps);
    let mut shorter = tensors(Kind::F16, extents, [1.0; 6]);
    shorter[1].1 = Tensor::random(Kind::F16, &[2, 3, 4, 8], 2);
    for tensors in [with_gaps, shorter, tensors(Kind::F64, extents, [1.0; 6])] {
        let problem = problem(&tensors);
        assert_eq!(find(&handle, problem), None);
        ok(unsafe { miopen().miopenDestroyProblem(problem) });
    }
    let whole = tensors(Kind::F32, extents, [1.0; 6]);
    let incomplete = problem(&whole[..whole.len() - 1]);
    let (mut solution, mut count) = (ptr::null_mut(), 0);
    let options = ptr::null_mut();
    refused(
        unsafe { miopen().miopenFindSolutions(handle.0, incomplete, options, &mut solution, &mut count, 1) },
        Status::miopenStatusBadParm,
    );
    ok(unsafe { miopen().miopenDestroyProblem(incomplete) });
}
