package machine

// The states of one request for approval.
const (
	// ApprovalPending: people are being asked. A person moves it on, or the clock. Not final.
	ApprovalPending State = "pending"
	// ApprovalParked: its time is over and the rule says to keep it for a person. It can no longer be approved;
	// a person rejects it, or it is cancelled and asked anew. Not final.
	ApprovalParked State = "parked"
	// ApprovalApproved: the quorum is complete. A worker spends it when it starts the call; the clock ends it
	// if no worker comes. Not final.
	ApprovalApproved State = "approved"
	// ApprovalSpent: the call it was for has started. It authorises nothing more. Final.
	ApprovalSpent State = "spent"
	// ApprovalRejected: a person said no. Final.
	ApprovalRejected State = "rejected"
	// ApprovalAnswered: a person gave the result in the tool's place, so there is nothing to authorise. Final.
	ApprovalAnswered State = "answered"
	// ApprovalExpired: its time was over before it was decided or before it was spent. Final.
	ApprovalExpired State = "expired"
	// ApprovalCancelled: the call or the run no longer needs it. Final.
	ApprovalCancelled State = "cancelled"
)

// The events of one request for approval.
const (
	// ApprovalVote: a yes that is short of the quorum. The state stays; the journal knows who voted.
	ApprovalVote Event = "vote"
	// ApprovalApprove: the yes that completes the quorum.
	ApprovalApprove Event = "approve"
	// ApprovalSpend: the call starts, in this same transaction.
	ApprovalSpend Event = "spend"
	// ApprovalReject: a person says no; one no is enough.
	ApprovalReject Event = "reject"
	// ApprovalAnswer: a person gives the result in the tool's place.
	ApprovalAnswer Event = "answer"
	// ApprovalExpire: the deadline passes and the rule says reject, or nobody spent it in time.
	ApprovalExpire Event = "expire"
	// ApprovalPark: the deadline passes and the rule says to keep it for a person.
	ApprovalPark Event = "park"
	// ApprovalCancel: the call or the run no longer needs it.
	ApprovalCancel Event = "cancel"
)
