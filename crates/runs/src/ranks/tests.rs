//! Ranks as threads of this process.

use highrank::shard::ShardGroup;
use serde_json::Value;

use super::threads::threads as each;
use super::*;
use crate::error::Error;

/// Numbers whose sum depends on the order.
fn values(rank: usize, count: usize) -> Vec<f32> {
    (0..count).map(|n| ((n * 7 + rank * 13) as f32).sin() * 10f32.powi(rank as i32 * 3 % 7)).collect()
}

#[test]
fn parts_cover_the_columns_and_are_of_equal_size() {
    for columns in 1..20 {
        for parts in 1..=columns {
            let all: Vec<_> = (0..parts).map(|index| cut(columns, parts, index)).collect();
            assert!(all.iter().flat_map(Clone::clone).eq(0..columns), "{columns} in {parts}");
            let sizes = all.iter().map(|part| part.len());
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1, "{columns} in {parts}");
        }
    }
    assert!(cut(2, 3, 2).is_empty());
}

#[test]
fn sums_are_in_the_order_of_the_ranks_everywhere() {
    for size in [1, 2, 3, 5] {
        // One of a number that no piece divides, and one with ranks that have nothing to sum.
        for count in [1, 2, 101] {
            let mut want = values(0, count);
            for rank in 1..size {
                want.iter_mut().zip(values(rank, count)).for_each(|(sum, value)| *sum += value);
            }
            let sums = each(size, |ranks| {
                let mut own = values(ranks.rank(), count);
                ranks.sum(&mut own).unwrap();
                own
            });
            assert!(sums.iter().all(|sum| *sum == want), "{size} ranks, {count} values");
        }
    }
}

#[test]
fn sums_in_bf16_are_near_and_the_same_everywhere() {
    let sums = each(3, |ranks| {
        let ranks = ranks.with_precision(ReducePrecision::Bf16);
        let mut own: Vec<f32> = (0..50).map(|n| 1.0 + (n * ranks.rank()) as f32 / 37.0).collect();
        ranks.sum(&mut own).unwrap();
        own
    });
    assert!(sums.iter().all(|sum| *sum == sums[0]));
    for (n, sum) in sums[0].iter().enumerate() {
        let want = 3.0 + 3.0 * n as f32 / 37.0;
        // Three values and their sum are rounded.
        assert!((sum - want).abs() <= want / 128.0 * 1.01, "{sum} {want}");
    }
    let exact = sums[0].iter().enumerate().filter(|(n, sum)| **sum == 3.0 + 3.0 * *n as f32 / 37.0).count();
    assert!(exact < 25, "nothing was rounded");
}

#[test]
fn what_is_too_long_for_a_message_goes_in_blocks() {
    for length in [0, 3, 4, 5, 11] {
        let own = |rank| (0..length).map(|n| 100.0 * rank as f64 + f64::from(n)).collect::<Vec<_>>();
        let want = (0..3).flat_map(own).collect::<Vec<_>>();
        for got in each(3, |ranks| ranks.gather_blocks(&own(ranks.rank()), 4).unwrap()) {
            assert_eq!(got, want, "{length}");
        }
    }
}

#[test]
fn everybody_hears_what_is_said() {
    let all = each(3, |ranks| {
        let own = vec![ranks.rank() as u8; ranks.rank() * 2];
        (
            ranks.gather(&own).unwrap(),
            ranks.first_says(ranks.rank() != 1).unwrap(),
            ranks.first_says(ranks.rank() == 1).unwrap(),
        )
    });
    for said in all {
        assert_eq!(said, (vec![vec![], vec![1; 2], vec![2; 4]], true, false));
    }
}

#[test]
fn what_one_rank_lacks_all_are_told() {
    let of = |failing: &[usize], reason: fn(usize) -> String| {
        let all = each(3, |ranks| {
            let own = match failing.contains(&ranks.rank()) {
                true => Err(Error::CannotExtend { path: "run".into(), reason: reason(ranks.rank()) }),
                false => Ok(()),
            };
            ranks.all_good(own).map_err(|error| error.to_string())
        });
        assert!(all.iter().all(|result| *result == all[0]));
        all[0].clone()
    };
    assert_eq!(of(&[], |_| String::new()), Ok(()));
    assert_eq!(of(&[2], |_| "bad".into()), Err("rank 2: cannot extend `run`: bad".into()));
    assert_eq!(of(&[1, 2], |_| "bad".into()), Err("rank 1: cannot extend `run`: bad".into()));
    // No rank is to blame.
    assert_eq!(of(&[0, 1, 2], |_| "bad".into()), Err("cannot extend `run`: bad".into()));
    assert_eq!(of(&[0, 1, 2], |rank| rank.to_string()), Err("rank 0: cannot extend `run`: 0".into()));
}

#[test]
fn settings_that_differ_are_named_with_their_rank() {
    let of = |value: fn(usize) -> Value| {
        let all = each(3, |ranks| {
            ranks.check_same("train", &value(ranks.rank())).map_err(|error| error.to_string())
        });
        assert!(all.iter().all(|result| *result == all[0]));
        all[0].clone()
    };
    assert_eq!(of(|_| serde_json::json!({"lr": 0.1})), Ok(()));
    let found = of(|rank| serde_json::json!({"lr": {"x": if rank == 2 { 5 } else { 1 }}, "a": 1}));
    assert_eq!(found, Err("rank 2 differs from rank 0: train.lr.x is 5 there, but 1 at rank 0".into()));
    // No list is printed as a whole.
    let found = of(|rank| serde_json::json!({"sizes": [{"n": 1}, {"n": if rank == 1 { 2 } else { 1 }}]}));
    assert_eq!(found, Err("rank 1 differs from rank 0: train.sizes[1].n is 2 there, but 1 at rank 0".into()));
    let found = of(|rank| serde_json::json!({"sizes": vec![0; 2 + rank]}));
    assert_eq!(
        found,
        Err("rank 1 differs from rank 0: train.sizes is a list of 3 there, but a list of 2 at rank 0".into())
    );
}

#[test]
fn groups_are_neighbours_and_sum_among_themselves() {
    let all = each(6, |ranks| {
        let grid = Grid::new(&ranks.with_precision(ReducePrecision::Bf16), 2).unwrap();
        let (vocabulary, batch) = (&grid.vocabulary, &grid.batch);
        let number = 1.0 + 1.0 / 1024.0;
        // Of groups, in full precision; groups need not exchange as much as each other.
        let mut own = vec![grid.all.rank() as f32 * number; 1 + batch.rank()];
        vocabulary.sum_f32(&mut own).unwrap();
        let others = batch.gather_equal(&[grid.all.rank() as u64]).unwrap();
        let places = [vocabulary.rank(), vocabulary.size(), batch.rank(), batch.size()];
        (places, own[0] / number, others, grid.is_first_group())
    });
    for (rank, (places, sum, others, first)) in all.into_iter().enumerate() {
        let (member, group) = (rank % 2, rank / 2);
        assert_eq!(places, [member, 2, group, 3]);
        assert_eq!(sum, (4 * group + 1) as f32);
        assert_eq!(others, [0, 2, 4].map(|first| first + member as u64));
        assert_eq!(first, group == 0);
    }
}
