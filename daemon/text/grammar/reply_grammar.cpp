#include "daemon/text/grammar/reply_grammar.hpp"

#include "daemon/text/grammar/call_arguments.hpp"
#include "daemon/text/grammar/call_syntax.hpp"
#include "daemon/text/grammar/free_text.hpp"
#include "daemon/text/grammar/pattern.hpp"
#include "daemon/text/grammar/schema.hpp"
#include "daemon/text/grammar/schema_error.hpp"
#include "daemon/text/reply/format.hpp"

#include <boost/json.hpp>

#include <algorithm>

namespace grammar {

namespace json = boost::json;

namespace {

using Id = Nfa::Id;
using Form = base::OutputRules::Form;
using Calls = base::OutputRules::Calls;

std::string words_of(const SchemaError& error) {
    std::string out = "at '" + (error.pointer.empty() ? "/" : error.pointer) + "'";
    if (!error.keyword.empty()) out += ", keyword '" + error.keyword + "'";
    return out + ": " + error.what();
}

/// Turns what goes wrong with a schema into words about it.
template <class Work>
auto about(Refusal::Part part, std::size_t tool, const std::string& what, Work work) {
    try {
        return work();
    } catch (const SchemaError& error) {
        throw RefusalError{
            {part, tool,
             "The schema of " + what + " cannot be enforced, " + words_of(error) + "."}};
    } catch (const PatternError& error) {
        throw RefusalError{
            {part, tool, "The schema of " + what + " cannot be enforced: " + error.what() + "."}};
    } catch (const LimitError& error) {
        throw RefusalError{
            {part, tool, "The schema of " + what + " cannot be enforced: " + error.what() + "."}};
    }
}

class ReplyWriter {
public:
    ReplyWriter(const base::OutputRules& rules, const ReplyForm& form, const TokenTable& tokens)
        : rules_{rules}, form_{form}, tokens_{tokens} {}

    Grammar write() {
        (void)grammar_.add_rule();
        nfa_.set_outer(true);
        const Id start = nfa_.add(), answer = nfa_.add();
        end_ = nfa_.add();
        if (rules_.calls != Calls::none && form_.format != nullptr)
            syntaxes_ = call_syntaxes(form_.format->name);
        if (rules_.calls == Calls::required && syntaxes_.empty())
            throw RefusalError{{Refusal::Part::model, 0,
                                "Calls cannot be required of this model: its chat template has no "
                                "form for them."}};
        if (form_.format != nullptr && form_.format->has_channels) {
            add_channels(start);
        } else {
            add_reasoning(start, answer);
            add_answer(answer);
        }
        grammar_.set_body(0, nfa_, start, end_);
        return std::move(grammar_);
    }

private:
    [[nodiscard]] bool has_calls() const { return !syntaxes_.empty() && !rules_.tools.empty(); }

    Id mark(Id from, std::string_view text) {
        grammar_.add_mark(text);
        return nfa_.text(from, text);
    }

    /// Nothing, a space, or one or two line ends.
    void add_gap(Id from, Id to) {
        for (const std::string_view gap : {"", " ", "\n", "\n\n"})
            nfa_.epsilon(nfa_.text(from, gap), to);
    }

    /// Marks that begin calls in free text, whether or not a call may follow.
    [[nodiscard]] std::vector<std::string> call_marks() const {
        std::vector<std::string> out;
        if (has_calls())
            for (const reply::Mark& one : form_.format->calls) out.emplace_back(one.text);
        return out;
    }

    void add_reasoning(Id start, Id answer) {
        Id open = start;
        if (!form_.in_reasoning) {
            add_gap(start, answer);
            if (form_.format == nullptr || !tokens_.has_token(form_.format->think_open)) return;
            open = nfa_.add();
            add_gap(start, open);
            open = mark(open, form_.format->think_open);
        }
        // A call before the reasoning is closed would be one that nothing binds.
        std::vector<std::string> marks = call_marks();
        marks.emplace_back(form_.format->think_close);
        grammar_.add_mark(marks.back());
        const FreeText reasoning = add_free_text(nfa_, marks);
        nfa_.epsilon(open, reasoning.start);
        add_gap(reasoning.behind.back(), answer);
    }

    void add_answer(Id answer) {
        if (rules_.calls == Calls::required)
            return add_calls(answer, "", end_, !rules_.parallel_calls);
        if (rules_.form != Form::text) {
            add_form(answer);
            if (has_calls()) add_calls(answer, "", end_, !rules_.parallel_calls);
            return;
        }
        add_text_with_calls(answer);
    }

    void add_form(Id from) {
        const std::uint32_t rule = grammar_.add_rule();
        Nfa body;
        const Id start = body.add();
        about(Refusal::Part::schema, 0, "the answer", [&] {
            json::value schema;
            if (rules_.form == Form::json_schema) schema = parse_schema(rules_.schema);
            SchemaWriter writer{grammar_, schema};
            const Id to = rules_.form == Form::json_schema
                              ? writer.add_value(body, start, schema, "")
                              : writer.add_any_object(body, start);
            grammar_.set_body(rule, body, start, to);
        });
        nfa_.call(from, {.rule = rule}, end_);
    }

    /// Text that may end anywhere, and calls at their marks.
    void add_text_with_calls(Id from) {
        const std::vector<std::string> marks = call_marks();
        if (marks.empty()) {
            const Id any = nfa_.add();
            nfa_.bytes(any, 0, 255, any);
            nfa_.epsilon(from, any);
            nfa_.epsilon(any, end_);
            return;
        }
        const FreeText text = add_free_text(nfa_, marks);
        for (const Id id : text.inside) nfa_.epsilon(id, end_);
        const Id after = rules_.parallel_calls ? text.start : end_;
        for (std::size_t i = 0; i < marks.size(); ++i) {
            grammar_.add_mark(marks[i]);
            add_calls(text.behind[i], marks[i], after, true);
        }
        if (form_.format->bare_object == nullptr) {
            nfa_.epsilon(from, text.start);
            return;
        }
        // A reply that begins like an object is a call.
        add_calls(from, "", end_, true);
        nfa_.epsilon(from, end_);
        const Id other = nfa_.add();
        nfa_.bytes(from, 0, '{' - 1, other);
        nfa_.bytes(from, '{' + 1, 255, other);
        nfa_.epsilon(other, text.start);
    }

    /// Messages with headers: reasoning and remarks are free, what the rules are about begins with
    /// a header of its own.
    void add_channels(Id start) {
        std::vector<std::string> marks;
        const bool binds_text = rules_.form != Form::text && rules_.calls != Calls::required;
        if (binds_text)
            marks = {"<|channel|>final<|message|>",
                     "<|channel|>final <|constrain|>json<|message|>"};
        const std::size_t num_final = marks.size();
        if (has_calls()) marks.emplace_back(syntaxes_.front()->before_name);
        const FreeText messages = add_free_text(nfa_, marks);
        nfa_.epsilon(start, messages.start);
        for (const std::string& one : marks) grammar_.add_mark(one);
        for (const std::string_view one :
             {"<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|constrain|>"})
            grammar_.add_mark(one);
        for (std::size_t i = 0; i < num_final; ++i) add_form(messages.behind[i]);
        if (has_calls()) add_calls(messages.behind.back(), marks.back(), end_, true);
        if (!binds_text && rules_.calls != Calls::required)
            for (const Id id : messages.inside) nfa_.epsilon(id, end_);
    }

    /// @param read  what of the syntax has been read already: rows that begin otherwise do not fit
    void add_calls(Id from, std::string_view read, Id to, bool is_single) {
        for (const CallSyntax* syntax : syntaxes_) {
            const std::string head = std::string{syntax->open} + std::string{syntax->before_name};
            if (!head.starts_with(read)) continue;
            grammar_.add_mark(syntax->open);
            grammar_.add_mark(head);
            const Id names = nfa_.add(), after = nfa_.add();
            nfa_.epsilon(nfa_.text(from, std::string_view{head}.substr(read.size())), names);
            for (std::size_t i = 0; i < rules_.tools.size(); ++i) {
                const Id begin =
                    mark(nfa_.text(names, rules_.tools[i].name), syntax->before_arguments);
                nfa_.epsilon(mark(add_arguments(begin, i, *syntax), syntax->after_call), after);
            }
            nfa_.epsilon(mark(after, syntax->close), to);
            if (!is_single && !syntax->is_single)
                nfa_.epsilon(mark(mark(after, syntax->between), syntax->before_name), names);
        }
    }

    Id add_arguments(Id from, std::size_t index, const CallSyntax& syntax) {
        const base::CallableTool& tool = rules_.tools[index];
        return about(Refusal::Part::tool, index, "the tool '" + tool.name + "'", [&] {
            return grammar::add_arguments(grammar_, nfa_, from, tool, syntax, tokens_);
        });
    }

    const base::OutputRules& rules_;
    const ReplyForm& form_;
    const TokenTable& tokens_;
    Grammar grammar_;
    Nfa nfa_;
    std::vector<const CallSyntax*> syntaxes_;
    Id end_ = 0;
};

}  // namespace

Grammar make_reply_grammar(const base::OutputRules& rules, const ReplyForm& form,
                           const TokenTable& tokens) {
    const auto refuse_all = [&](const std::string& why) {
        const bool is_schema = rules.form != Form::text && rules.calls != Calls::required;
        throw RefusalError{{is_schema ? Refusal::Part::schema : Refusal::Part::tool, 0,
                            "The schema cannot be enforced: " + why + "."}};
    };
    try {
        Grammar grammar = ReplyWriter{rules, form, tokens}.write();
        if (!grammar.finish()) refuse_all("no value is valid under it, or none of a bounded depth");
        return grammar;
    } catch (const LimitError& error) {
        refuse_all(error.what());
    }
    throw std::logic_error{"not reached"};
}

}  // namespace grammar
