"""Why the planner chose what it chose, and why a session waits: one word each, for records, pages and tests."""

from __future__ import annotations

import enum


class PlanReason(enum.StrEnum):
    """The reason for one choice in a session plan."""

    # hash buckets
    ASKED_FOR = "asked_for"  # the document says so
    SMALL_TABLE = "small_table"  # as many as keep a machine busy
    HALF_OF_MEMORY = "half_of_memory"  # a bucket takes half of a task's memory (paper, figure 3-1)
    INHERITED = "inherited"  # as many as the index has: each still fits a task
    # rehash
    NO_INDEX = "no_index"  # a first compaction
    BUCKETS_FIT = "buckets_fit"  # below 90 % of a task's memory
    BUCKETS_TOO_LARGE = "buckets_too_large"  # above 90 %: rehashed to half (paper, compaction sessions)
    # rounds
    FITS_OBJECT_STORE = "fits_object_store"
    EXCEEDS_OBJECT_STORE = "exceeds_object_store"
    # what it runs on
    CHEAPEST_THAT_MEETS_SLA = "cheapest_that_meets_sla"
    CHEAPEST = "cheapest"  # nobody asked for an SLA
    CHEAPEST_WITHIN_A_DAY = "cheapest_within_a_day"  # nobody asked for an SLA, but the cheapest takes over a day
    FASTEST = "fastest"  # nothing meets the SLA, so the offer that comes nearest
    FIRST_STAGE = "first_stage"  # as many workers as the first stage has tasks for
    ALL_SLOTS = "all_slots"
    MEMORY = "memory"  # fewer tasks at a time, so that they fit
    # the desired SLA
    MET = "met"
    CANNOT_BE_MET = "cannot_be_met"
    NOT_ASKED_FOR = "not_asked_for"
    MORE_CPUS = "more_cpus"  # would keep it
    # memory
    FITS = "fits"
    EXCEEDS_MEMORY = "exceeds_memory"  # on every offer, with one task at a time
    # group
    SHARES_START = "shares_start"  # too small to be worth a process or cluster of its own
    WORTH_ITS_START = "worth_its_start"


class Wait(enum.StrEnum):
    """Why a group of sessions does not start now, or why nobody works on a job run."""

    SESSIONS = "sessions"  # as many sessions run as the limit allows
    WORKERS = "workers"
    MEMORY = "memory"  # the running groups have planned for this machine's memory
    CPUS = "cpus"
    QUIET = "quiet"  # a quiet window
    RESERVED = "reserved"  # its place is kept for a group that has waited too long
    NEVER_FITS = "never_fits"  # the group needs more than the limits allow, even alone
    STREAM = "stream"  # another job run works on one of its streams, or was accepted before it
    LAUNCHER = "launcher"  # the job run is planned for a launcher that no dispatcher has
