"""From a message to ended sessions: accept, claim, plan, launch, follow, end; and take over from who fell silent."""
