package contract

// ApprovalSchemaV1 names the wire form of [Approval].
const ApprovalSchemaV1 = "evalbox/approval/v1"

// Approval is a person's consent to one execution of one contract at a level that
// needs it: elevated files, the open network.
type Approval struct {
	// Schema is [ApprovalSchemaV1].
	Schema string `json:"schema"`
	// ID makes the approval single-use.
	ID string `json:"id"`
	// ContractSHA256 is the contract that it is for, see [Outcome.ContractSHA256].
	ContractSHA256 string `json:"contract_sha256"`
	// Root is the host folder that its paths are relative to, links resolved, and Image
	// the image as it was asked for; empty is the default one.
	Root  string `json:"root"`
	Image string `json:"image"`
	// ApprovedBy and Reason are who said so, and why; neither may be empty.
	ApprovedBy string `json:"approved_by"`
	Reason     string `json:"reason"`
	// ApprovedAt and ExpiresAt are RFC 3339 times.
	ApprovedAt string `json:"approved_at"`
	ExpiresAt  string `json:"expires_at"`
	// Levels are what is approved: "filesystem:elevated", "network:open".
	Levels []string `json:"levels"`
	// MAC is made of all the rest with a key of the state folder, see
	// [ApprovalLedger.Seal]. Outcomes do not have it.
	MAC string `json:"mac,omitempty"`
}
