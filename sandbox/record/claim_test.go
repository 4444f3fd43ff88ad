package record_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
)

func TestClaim(t *testing.T) {
	s := recordtest.Open(t)
	recordtest.Add(t, s, "lost", recordtest.DeadOwner(), time.Now(), false)
	recordtest.Add(t, s, "alive", owner.This(), time.Now(), false)
	recordtest.Add(t, s, "over", recordtest.DeadOwner(), time.Now(), true)
	for _, id := range []string{"beginning", "no-journal"} {
		_, err := s.Create(id)
		require.NoError(t, err)
	}
	recordtest.BegunBy(t, s, "no-journal", recordtest.DeadOwner())
	orphans, err := s.Orphans()
	require.NoError(t, err)
	require.Equal(t, []string{"lost", "no-journal", "over"}, orphans)

	later := time.Now().Add(time.Hour)
	_, err = s.Claim(t.Context(), "alive", later)
	require.ErrorIs(t, err, record.ErrRunning)
	_, err = s.Claim(t.Context(), "nowhere", later)
	require.ErrorIs(t, err, record.ErrNoRecord)
	_, err = s.Claim(t.Context(), "no-journal", later)
	require.ErrorIs(t, err, record.ErrNoJournal)
	_, err = s.Claim(t.Context(), "beginning", later)
	require.ErrorIs(t, err, record.ErrRunning, "it is about to write its journal")

	// One of many gets it, and after it gave up another one.
	for range 2 {
		var got sync.WaitGroup
		claims := make(chan record.Journal, 8)
		for range cap(claims) {
			got.Go(func() {
				if note, err := s.Claim(t.Context(), "lost", later); err == nil {
					claims <- note
				}
			})
		}
		got.Wait()
		require.Len(t, claims, 1)
		note := <-claims
		require.Equal(t, "lost", note.ID)
		state, err := s.State("lost")
		require.NoError(t, err)
		require.Equal(t, record.Running, state)
		now, err := s.Journal("lost")
		require.NoError(t, err)
		require.Equal(t, owner.This().String(), now.Owner)
		require.True(t, now.Adopted)
		require.WithinDuration(t, later, now.Deadline, 0)
		require.NoError(t, s.Disclaim(t.Context(), "lost", note.Deadline))
		now, err = s.Journal("lost")
		require.NoError(t, err)
		require.True(t, now.Deadline.Equal(note.Deadline))
		state, err = s.State("lost")
		require.NoError(t, err)
		require.Equal(t, record.Lost, state)
	}
	for _, id := range orphans {
		require.NoError(t, s.Settle(id))
	}
	orphans, err = s.Orphans()
	require.NoError(t, err)
	require.Empty(t, orphans)
	require.NoError(t, s.Disclaim(t.Context(), "nowhere", later), "its record was removed")
}
